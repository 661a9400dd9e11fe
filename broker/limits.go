package broker

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

var (
	errTooManyConnections = errors.New("too many connections")
	errTooManyFromAddress = errors.New("too many connections from this address")
)

// connLimits counts connections, in all and per address.
type connLimits struct {
	maxTotal      int
	maxPerAddress int

	mu    sync.Mutex
	total int                // guarded by mu
	from  map[netip.Addr]int // guarded by mu; no entry is zero
}

func newConnLimits(maxTotal, maxPerAddress int) *connLimits {
	return &connLimits{maxTotal: maxTotal, maxPerAddress: maxPerAddress, from: make(map[netip.Addr]int)}
}

// admit counts one more connection from a, or refuses it.
func (l *connLimits) admit(a netip.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.maxTotal {
		return errTooManyConnections
	}
	if l.from[a] >= l.maxPerAddress {
		return errTooManyFromAddress
	}
	l.total++
	l.from[a]++
	return nil
}

// leave undoes one admit of the same address.
func (l *connLimits) leave(a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.from[a]--; l.from[a] == 0 {
		delete(l.from, a)
	}
}

// addressOf is the address that a connection is counted under: an IPv4 address
// mapped into IPv6 is the IPv4 one, and connections without addresses (pipes) share one.
func addressOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

const (
	logBurst  = 20              // lines about refused clients that may come at once
	logRefill = 2 * time.Second // time after which one more may come
)

// logLimit keeps clients from filling the log: lines about what they did wrong
// come in a burst and then at a fixed rate; the rest are counted.
type logLimit struct {
	mu      sync.Mutex
	tokens  int       // guarded by mu
	filled  time.Time // guarded by mu; when tokens was last brought up to date
	skipped int       // guarded by mu; lines dropped since the last one that was allowed
}

func newLogLimit(now time.Time) *logLimit {
	return &logLimit{tokens: logBurst, filled: now}
}

// allow tells whether a line may be written now, and how many were dropped before it.
func (l *logLimit) allow(now time.Time) (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := int(now.Sub(l.filled) / logRefill); n > 0 {
		l.tokens = min(logBurst, l.tokens+n)
		l.filled = l.filled.Add(time.Duration(n) * logRefill)
	}
	if l.tokens == 0 {
		l.skipped++
		return 0, false
	}
	l.tokens--
	skipped, l.skipped = l.skipped, 0
	return skipped, true
}
