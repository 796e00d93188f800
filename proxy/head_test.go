package proxy

import "testing"

func TestStrictHead(t *testing.T) {
	t.Parallel()
	const first = "GET http://good.test/ HTTP/1.1\r\n"
	for _, tt := range []struct{ name, head, host, wantErr string }{
		{"no headers", first + "\r\n", "", ""},
		{"host", first + "Host: good.test\r\n\r\n", "good.test", ""},
		{"host without space", first + "HOST:good.test\t\r\n\r\n", "good.test", ""},
		{"body ignored", first + "Host: good.test\r\n\r\nHost: evil.test\r\n\r\n", "good.test", ""},
		{"empty value", first + "X:\r\nHost: good.test\r\n\r\n", "good.test", ""},
		{"one length", first + "Content-Length: 3\r\n\r\n", "", ""},
		{"no end", first + "Host: good.test\r\n", "", "head has lines that do not end in CR LF"},
		{"bare LF", "GET / HTTP/1.1\nHost: good.test\n\n", "", "head has lines that do not end in CR LF"},
		{"bare LF inside", first + "X: a\nHost: evil.test\r\n\r\n", "", "head has control bytes"},
		{"bare CR inside", first + "X: a\rHost: evil.test\r\n\r\n", "", "head has control bytes"},
		{"NUL", first + "X: a\x00\r\n\r\n", "", "head has control bytes"},
		{"folded", first + "X: a\r\n\tb\r\n\r\n", "", "folded header line"},
		{"space before colon", first + "Host : evil.test\r\n\r\n", "", "header line without a name"},
		{"no colon", first + "Host\r\n\r\n", "", "header line without a name"},
		{"no name", first + ": x\r\n\r\n", "", "header line without a name"},
		{"two hosts", first + "Host: good.test\r\nhost: evil.test\r\n\r\n", "", "more than one Host header"},
		{"two lengths", first + "Content-Length: 3\r\ncontent-length: 3\r\n\r\n", "", "length of the body given twice"},
		{"two encodings", first + "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n", "", "length of the body given twice"},
		{"length and encoding", first + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "", "both Content-Length and Transfer-Encoding"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			host, err := strictHead([]byte(tt.head))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if host != tt.host || got != tt.wantErr {
				t.Errorf("strictHead = %q, %q, want %q, %q", host, got, tt.host, tt.wantErr)
			}
		})
	}
}
