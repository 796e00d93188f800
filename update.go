package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"eggrun/container"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v2"
)

var updateCommand = &cli.Command{
	Name:      "update",
	Usage:     "change the limits of a container; what is not given stays",
	ArgsUsage: "ID",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "resources", Aliases: []string{"r"}, Usage: "read linux.resources from the JSON `FILE`, or from stdin if it is -, and ignore the other limits"},
		&cli.StringFlag{Name: "blkio-weight", Usage: "share of the block devices, 10 to 1000"},
		&cli.StringFlag{Name: "cpu-period", Usage: "period of the CPU quota, in microseconds"},
		&cli.StringFlag{Name: "cpu-quota", Usage: "CPU time in each period, in microseconds; -1 for no limit"},
		&cli.StringFlag{Name: "cpu-burst", Usage: "unused CPU time that may be used later, in microseconds"},
		&cli.StringFlag{Name: "cpu-share", Usage: "share of the CPUs; the default is 1024"},
		&cli.StringFlag{Name: "cpu-rt-period", Usage: "period of the realtime quota, in microseconds"},
		&cli.StringFlag{Name: "cpu-rt-runtime", Usage: "realtime CPU time in each period, in microseconds"},
		&cli.StringFlag{Name: "cpuset-cpus", Usage: "CPUs to run on, such as 0-2,7"},
		&cli.StringFlag{Name: "cpuset-mems", Usage: "memory nodes to use, such as 0,1"},
		&cli.StringFlag{Name: "cpu-idle", Usage: "1 to run only when nobody else wants to, 0 as usual"},
		&cli.StringFlag{Name: "memory", Usage: "memory limit in bytes, or with k, m or g; -1 for none"},
		&cli.StringFlag{Name: "memory-reservation", Usage: "memory to be left to the container when it is scarce"},
		&cli.StringFlag{Name: "memory-swap", Usage: "limit of memory and swap together; -1 for no limit of swap"},
		&cli.StringFlag{Name: "kernel-memory", Usage: "ignored", Hidden: true},
		&cli.StringFlag{Name: "kernel-memory-tcp", Usage: "ignored", Hidden: true},
		&cli.StringFlag{Name: "pids-limit", Usage: "limit of processes and threads; -1 for none"},
		&cli.StringFlag{Name: "l3-cache-schema", Usage: "share of the processors' cache, as in linux.intelRdt"},
		&cli.StringFlag{Name: "mem-bw-schema", Usage: "share of the memory's bandwidth, as in linux.intelRdt"},
	},
	Action: func(c *cli.Context) error {
		if _, err := oneID(c); err != nil {
			return err
		}
		resources, err := givenLimits(c)
		if err != nil {
			return err
		}
		return withContainer(c, container.Lock, func(ctr *container.Container) error {
			return ctr.Update(&container.UpdateOptions{
				Resources:     resources,
				L3CacheSchema: c.String("l3-cache-schema"),
				MemBwSchema:   c.String("mem-bw-schema"),
			})
		})
	},
}

// givenLimits returns the limits of a file or of the command line.
func givenLimits(c *cli.Context) (*specs.LinuxResources, error) {
	switch path := c.String("resources"); path {
	case "":
		return limitsOfFlags(c)
	case "-":
		return readLimits(os.Stdin, "stdin")
	default:
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readLimits(f, path)
	}
}

func readLimits(in io.Reader, name string) (*specs.LinuxResources, error) {
	resources := &specs.LinuxResources{}
	err := json.NewDecoder(in).Decode(resources)
	if errors.Is(err, io.EOF) {
		err = errors.New("empty, want JSON")
	}
	if err != nil {
		return nil, fmt.Errorf("resources %q: %w", name, err)
	}
	return resources, nil
}

// limitsOfFlags takes an empty value for none, as runc does.
func limitsOfFlags(c *cli.Context) (*specs.LinuxResources, error) {
	f := flagReader{c: c}
	resources := &specs.LinuxResources{
		Memory: &specs.LinuxMemory{
			Limit:       f.size("memory"),
			Reservation: f.size("memory-reservation"),
			Swap:        f.size("memory-swap"),
		},
		CPU: &specs.LinuxCPU{
			Shares:          f.unsigned("cpu-share", math.MaxUint64),
			Quota:           f.signed("cpu-quota"),
			Burst:           f.unsigned("cpu-burst", math.MaxUint64),
			Period:          f.unsigned("cpu-period", math.MaxUint64),
			RealtimeRuntime: f.signed("cpu-rt-runtime"),
			RealtimePeriod:  f.unsigned("cpu-rt-period", math.MaxUint64),
			Cpus:            c.String("cpuset-cpus"),
			Mems:            c.String("cpuset-mems"),
			Idle:            f.signed("cpu-idle"),
		},
		Pids:    &specs.LinuxPids{Limit: f.signed("pids-limit")},
		BlockIO: &specs.LinuxBlockIO{},
	}
	if weight := f.unsigned("blkio-weight", math.MaxUint16); weight != nil {
		narrow := uint16(*weight)
		resources.BlockIO.Weight = &narrow
	}
	return resources, f.err
}

// flagReader reads numbers, nil where the flag is not given. It keeps the first
// error.
type flagReader struct {
	c   *cli.Context
	err error
}

func (f *flagReader) signed(name string) *int64 {
	return readFlag(f, name, func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) })
}

func (f *flagReader) unsigned(name string, most uint64) *uint64 {
	return readFlag(f, name, func(text string) (uint64, error) {
		number, err := strconv.ParseUint(text, 10, 64)
		if err == nil && number > most {
			err = strconv.ErrRange
		}
		return number, err
	})
}

func (f *flagReader) size(name string) *int64 {
	return readFlag(f, name, parseSize)
}

func readFlag[T any](f *flagReader, name string, parse func(string) (T, error)) *T {
	text := f.c.String(name)
	if text == "" {
		return nil
	}
	number, err := parse(text)
	if err != nil {
		what := "want a number"
		if errors.Is(err, strconv.ErrRange) {
			what = "out of range"
		}
		if f.err == nil {
			f.err = fmt.Errorf("option --%s %q: %s", name, text, what)
		}
		return nil
	}
	return &number
}

// parseSize reads a number of bytes as runc does: -1, or a number that may have
// a fraction and k, m, g, t or p after it, powers of 1024, each with b or ib or
// nothing.
func parseSize(text string) (int64, error) {
	if text == "-1" {
		return -1, nil
	}
	if number, err := strconv.ParseUint(text, 10, 63); err == nil {
		return int64(number), nil // exact
	}
	unit := strings.ToLower(strings.TrimLeft(text, "0123456789."))
	number, err := strconv.ParseFloat(text[:len(text)-len(unit)], 64)
	if err != nil {
		return 0, err
	}
	unit = strings.TrimPrefix(unit, " ")
	switch rest := strings.TrimLeft(unit, "kmgtp"); {
	case unit == "", unit == "b":
	case len(unit)-len(rest) != 1, rest != "" && rest != "b" && rest != "ib":
		return 0, strconv.ErrSyntax
	default:
		number *= math.Pow(1024, float64(1+strings.IndexByte("kmgtp", unit[0])))
	}
	if number >= math.MaxInt64 {
		return 0, strconv.ErrRange
	}
	return int64(number), nil
}
