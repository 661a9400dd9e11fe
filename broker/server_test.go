package broker

import (
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/wire"
)

func TestServerConfigValidate(t *testing.T) {
	if err := defaultServerConfig().validate(); err != nil {
		t.Fatalf("the defaults: %v", err)
	}
	changes := map[string]func(*serverConfig){
		"requests too small":  func(c *serverConfig) { c.MaxRequestBytes = 4 },
		"no request memory":   func(c *serverConfig) { c.RequestMemory = 0 },
		"no inflate memory":   func(c *serverConfig) { c.InflateMemory = -1 },
		"no fetch":            func(c *serverConfig) { c.FetchMaxBytes = 0 },
		"negative batch":      func(c *serverConfig) { c.MessageMaxBytes = -1 },
		"no connections":      func(c *serverConfig) { c.MaxConnections = 0 },
		"none of one address": func(c *serverConfig) { c.MaxConnectionsPerIP = 0 },
		"nothing in flight":   func(c *serverConfig) { c.MaxInFlight = 0 },
		"no idle time":        func(c *serverConfig) { c.IdleTimeout = 0 },
		"no frame time":       func(c *serverConfig) { c.FrameTimeout = 0 },
		"no write time":       func(c *serverConfig) { c.WriteTimeout = 0 },
	}
	for name, change := range changes {
		c := defaultServerConfig()
		change(&c)
		if _, err := newServer(c, &backend{log: hclog.NewNullLogger(), metrics: newMetrics()}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Every handler is for an API that wire knows, and is there once. What wire knows
// beyond that is not served, and ApiVersions does not name it.
func TestHandlerTable(t *testing.T) {
	ts := newTestServer(t, nil)
	handled := make(map[wire.Key]bool)
	for _, row := range apiRows() {
		if row.handle == nil || handled[row.key] {
			t.Errorf("key %d has no handler, or two", row.key)
		}
		handled[row.key] = true
	}
	for _, api := range wire.APIs() {
		if served := ts.srv.served(api.Key) != nil; served != handled[api.Key] {
			t.Errorf("%s: served %v, has a handler %v", api.Name, served, handled[api.Key])
		}
	}
	for _, v := range ts.srv.advertised() {
		if !handled[v.ApiKey] {
			t.Errorf("%v is advertised and has no handler", v.ApiKey)
		}
	}
}

// scriptedListener returns errors, then whatever the real one accepts.
type scriptedListener struct {
	net.Listener
	mu     sync.Mutex
	errors []error // guarded by mu
	calls  int     // guarded by mu
}

func (l *scriptedListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	l.calls++
	if len(l.errors) > 0 {
		err := l.errors[0]
		l.errors = l.errors[1:]
		l.mu.Unlock()
		return nil, err
	}
	l.mu.Unlock()
	return l.Listener.Accept()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Having no descriptors left ends nothing: the listener is tried again.
func TestServeOutlivesAcceptErrors(t *testing.T) {
	ts := newTestServer(t, nil)
	l := &scriptedListener{Listener: listen(t), errors: []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED}}
	ts.addr = l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- ts.srv.Serve(l) }()
	ts.dial().ask(apiVersionsRequest(3))
	if got := strings.Count(ts.logs.String(), "accept a client"); got != 3 {
		t.Errorf("%d lines about errors, want 3", got)
	}
	if err := ts.srv.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("serve = %v after Close, want nil", err)
	}
}

// A listener that somebody else closed is an error of Serve.
func TestServeReportsLostListener(t *testing.T) {
	ts := newTestServer(t, nil)
	l := listen(t)
	done := make(chan error, 1)
	go func() { done <- ts.srv.Serve(l) }()
	_ = l.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("serve = %v, want that the listener is closed", err)
	}
}

// Serve on a server that is closed closes the listener and returns.
func TestServeAfterClose(t *testing.T) {
	ts := newTestServer(t, nil)
	for range 2 { // closing twice is harmless
		if err := ts.srv.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l := listen(t)
	if err := ts.srv.Serve(l); err != nil {
		t.Errorf("serve = %v, want nil", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept = %v, want that the listener is closed", err)
	}
}

func TestAcceptPauseGrows(t *testing.T) {
	var p acceptPause
	stop := make(chan struct{})
	close(stop)
	var last time.Duration
	for range 12 {
		p.wait(stop)
		if p.last < last || p.last > acceptPauseMax {
			t.Fatalf("pause %v after %v", p.last, last)
		}
		last = p.last
	}
	if last != acceptPauseMax {
		t.Errorf("the pause ends at %v, want %v", last, acceptPauseMax)
	}
}
