package ratelimittest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
)

// A Daemon is a real ratelimitd on its memory store, with a clock that only the test moves.
type Daemon struct {
	Socket string // the path of its socket

	t       testing.TB
	config  string
	client  *ratelimit.Client // of the test itself, for the clock
	process *exec.Cmd
	exited  chan struct{}
	log     *lockedBuffer

	mu    sync.Mutex
	clock time.Time
}

// Start starts a daemon for this test, with a configuration in the form of ratelimitd.yaml(5), and ends it with the
// test. "" is a configuration with one policy, `default`. The program is $RATELIMITD, or `ratelimitd` in
// $RATELIMITD_BUILD/bin or in $PATH; the test is skipped if there is none, and fails where $CI is set.
func Start(t testing.TB, configuration string) *Daemon {
	t.Helper()
	program, err := find()
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}

	folder, err := os.MkdirTemp("", "ratelimitd-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	d := &Daemon{Socket: filepath.Join(folder, "s"), t: t, clock: time.Unix(1_700_000_000, 0)}
	if configuration != "" {
		d.config = filepath.Join(folder, "ratelimitd.yaml")
		if err := os.WriteFile(d.config, []byte(configuration), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.client = ratelimit.New(ratelimit.WithSocket(d.Socket), ratelimit.WithTimeout(5*time.Second),
		ratelimit.WithEnabled(true))
	t.Cleanup(func() { d.client.Close(); d.Stop() })
	d.run(program)

	return d
}

func find() (string, error) {
	if program := os.Getenv("RATELIMITD"); program != "" {
		return program, nil
	}
	if build := os.Getenv("RATELIMITD_BUILD"); build != "" {
		return filepath.Join(build, "bin", "ratelimitd"), nil
	}
	program, err := exec.LookPath("ratelimitd")
	if err != nil {
		return "", errors.New("ratelimittest: there is no ratelimitd in $PATH; name it in $RATELIMITD")
	}
	return program, nil
}

func (d *Daemon) run(program string) {
	d.t.Helper()
	arguments := []string{"--test-clock", "-s", d.Socket}
	if d.config != "" {
		arguments = append(arguments, "-c", d.config)
	}
	d.log, d.exited = &lockedBuffer{}, make(chan struct{})
	d.process = exec.Command(program, arguments...)
	d.process.Stdout, d.process.Stderr = d.log, d.log
	d.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.process.Start(); err != nil {
		d.t.Fatal(err)
	}
	go func(process *exec.Cmd, exited chan struct{}) { process.Wait(); close(exited) }(d.process, d.exited)

	for { // until it listens; a test binary has its own timeout
		select {
		case <-d.exited:
			d.t.Fatalf("ratelimittest: the daemon did not start:\n%s", d.log)
		case <-time.After(2 * time.Millisecond):
		}
		if _, err := os.Stat(d.Socket); err == nil && d.client.Ping(context.Background()) == nil {
			break
		}
	}
	d.Advance(0)
}

// Client returns a new client of this daemon, which is closed with the test. Its timeout is ten seconds, because a busy
// machine may stop for one; the options say otherwise.
func (d *Daemon) Client(options ...ratelimit.ClientOption) *ratelimit.Client {
	client := ratelimit.New(append([]ratelimit.ClientOption{ratelimit.WithSocket(d.Socket),
		ratelimit.WithTimeout(10 * time.Second)}, options...)...)
	d.t.Cleanup(func() { client.Close() })
	return client
}

// Advance moves the daemon's clock. Its limits know no other time.
func (d *Daemon) Advance(by time.Duration) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()

	d.clock = d.clock.Add(by)
	if _, err := d.client.Call(context.Background(), "test_clock", d.clock.UnixMicro()); err != nil {
		d.t.Fatal(err)
	}
}

// Stop ends the daemon, as `systemctl stop` would.
func (d *Daemon) Stop() { d.signal(syscall.SIGTERM); <-d.exited }

// Kill ends the daemon without warning.
func (d *Daemon) Kill() { d.signal(syscall.SIGKILL); <-d.exited }

// Pause has the daemon stand still until Resume.
func (d *Daemon) Pause() { d.signal(syscall.SIGSTOP) }

// Resume is the end of a Pause.
func (d *Daemon) Resume() { d.signal(syscall.SIGCONT) }

// Restart starts a daemon that was stopped or killed. Its memory store is empty then.
func (d *Daemon) Restart() { d.t.Helper(); d.Kill(); d.run(d.process.Path) }

// Log is what the daemon has written so far.
func (d *Daemon) Log() string { return d.log.String() }

func (d *Daemon) signal(signal syscall.Signal) {
	select {
	case <-d.exited:
	default:
		d.process.Process.Signal(signal)
		if signal == syscall.SIGTERM || signal == syscall.SIGKILL {
			d.process.Process.Signal(syscall.SIGCONT) // it may be paused
		}
	}
}

type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(b.buffer.String())
}
