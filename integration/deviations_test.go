package integration

// deviations are the tests that a runtime is known to fail, with the reason.
// A test without a line here that runc fails is wrong.
var deviations = map[string]map[string]string{
	"runc": { // Debian's 1.1.5
		"TestConsoleLongPath":            "dials the path as it is: invalid argument",
		"TestDevicesDoNotFollowLinks":    "CVE-2026-41579: makes links through the image's /dev on the host",
		"TestDomainname":                 "the field came with runtime-spec 1.1; runc ignores it before 1.2",
		"TestExecForeground":             "sets the terminal's size after the program has started: sometimes too late",
		"TestExecRlimits":                "Go sometimes undoes the soft RLIMIT_NOFILE at exec",
		"TestExecSeccompNotify":          "exec stands half a minute or longer in the filter itself, before the agent has it",
		"TestHookFails/poststart":        "runs poststart in create until 1.6",
		"TestResources/CPU_burst":        "the field came with runc 1.2",
		"TestResources/CPU_idle":         "the field came with runc 1.2",
		"TestPodmanCheckpoint/elsewhere": "fails now and then with criu 4: NOTIFY errno 0",
		"TestPodmanCheckpoint/in_place":  "fails now and then with criu 4: NOTIFY errno 0",
		"TestPodmanCheckpoint/terminal":  "fails now and then with criu 4: NOTIFY errno 0",
		"TestPersonality":                "the field came with runc 1.2",
		"TestTimeNamespace":              "time namespaces came with runc 1.2",
		"TestUpdateFails":                "what it sets back are the new values",
	},
}
