package broker

import (
	"errors"
	"net/netip"
	"testing"
	"time"
)

func TestConnLimits(t *testing.T) {
	l := newConnLimits(3, 2)
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	steps := []struct {
		from netip.Addr
		want error
	}{{a, nil}, {a, nil}, {a, errTooManyFromAddress}, {b, nil}, {b, errTooManyConnections}}
	for i, s := range steps {
		if err := l.admit(s.from); !errors.Is(err, s.want) {
			t.Fatalf("step %d: admit = %v, want %v", i, err, s.want)
		}
	}
	l.leave(a)
	if err := l.admit(b); err != nil {
		t.Fatalf("admit after a leave = %v", err)
	}
	l.leave(a)
	l.leave(b)
	l.leave(b)
	if l.total != 0 || len(l.from) != 0 {
		t.Fatalf("%d connections from %d addresses are left over", l.total, len(l.from))
	}
}

func TestLogLimit(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newLogLimit(now)
	allowed := 0
	for range 100 {
		if _, ok := l.allow(now); ok {
			allowed++
		}
	}
	if allowed != logBurst {
		t.Fatalf("%d lines at once, want %d", allowed, logBurst)
	}
	skipped, ok := l.allow(now.Add(logRefill))
	if !ok || skipped != 100-logBurst {
		t.Fatalf("allow = %d, %v after the refill, want %d skipped", skipped, ok, 100-logBurst)
	}
	if _, ok := l.allow(now.Add(logRefill)); ok {
		t.Fatal("a second line came within one refill")
	}
}
