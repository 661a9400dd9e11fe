package controller

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// raftRepeat is how often the same complaint of Raft is worth reading: about a node that is
// away it makes several each second.
const raftRepeat = 30 * time.Second

// raftLogger passes each warning or error of Raft on once in raftRepeat.
type raftLogger struct {
	hclog.Logger
	mu   sync.Mutex
	seen map[string]time.Time
}

func newRaftLogger(l hclog.Logger) *raftLogger {
	return &raftLogger{Logger: l, seen: make(map[string]time.Time)}
}

// Warn logs a warning unless it has been logged lately.
func (l *raftLogger) Warn(msg string, args ...any) {
	if l.fresh(msg, args) {
		l.Logger.Warn(msg, args...)
	}
}

// Error logs an error unless it has been logged lately.
func (l *raftLogger) Error(msg string, args ...any) {
	if l.fresh(msg, args) {
		l.Logger.Error(msg, args...)
	}
}

// fresh tells whether a message is due. Messages are alike when they say the same of the same
// peer, which Raft always names first.
func (l *raftLogger) fresh(msg string, args []any) bool {
	key := fmt.Sprint(msg, args[:min(2, len(args))])
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.seen[key]; ok && now.Sub(at) < raftRepeat {
		return false
	}
	for k, at := range l.seen { // few: forget what is stale
		if now.Sub(at) >= raftRepeat {
			delete(l.seen, k)
		}
	}
	l.seen[key] = now
	return true
}
