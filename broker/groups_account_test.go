package broker

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/fsm"
)

// This file tells what is known of a group that a test has given up waiting for: one
// that is stuck once in a thousand runs leaves nothing else to look at.

// clientLogEnd is how many of a client's first messages are kept, and how many of its
// last. A client that retries in a loop says more between them.
const clientLogEnd = 150

// clientLog keeps the first and the last messages of a client.
type clientLog struct {
	mu    sync.Mutex
	first []string // guarded by mu
	last  []string // guarded by mu; the oldest first
	more  int      // guarded by mu; how many were between them
	lost  []string // guarded by mu; those by which the cluster did not know the client as a member
}

// Level implements kgo.Logger.
func (*clientLog) Level() kgo.LogLevel { return kgo.LogLevelInfo }

// Log implements kgo.Logger.
func (l *clientLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", time.Now().UTC().Format("15:04:05.000"), level, msg)
	for i := 0; i+1 < len(keyvals); i += 2 {
		fmt.Fprintf(&b, " %v=%v", keyvals[i], keyvals[i+1])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(b.String(), kerr.UnknownMemberID.Message) && len(l.lost) < clientLogEnd {
		l.lost = append(l.lost, b.String())
	}
	switch {
	case len(l.first) < clientLogEnd:
		l.first = append(l.first, b.String())
		return
	case len(l.last) == clientLogEnd:
		l.last = append(l.last[:0], l.last[1:]...)
		l.more++
	}
	l.last = append(l.last, b.String())
}

// String is what was kept, a line for each message.
func (l *clientLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.first
	if l.more > 0 {
		all = append(all[:len(all):len(all)], fmt.Sprintf("... %d messages more ...", l.more))
	}
	return strings.Join(append(all[:len(all):len(all)], l.last...), "\n")
}

// forgotten are the messages by which the cluster did not know the client as a member.
func (l *clientLog) forgotten() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lost)
}

// account logs all that is known of group "g": what each client has and has said, the
// row on each node, and the group with its flight recorder as its coordinator sees it.
// It logs nothing in tests in which no client has joined.
func (c *cluster) account() {
	c.Helper()
	if len(c.members) == 0 {
		return
	}
	for _, m := range c.members {
		assigned, revoked := m.rebalances()
		c.Logf("%s has %v, was given partitions %d times, lost some %d times, and said:\n%s", m.name, m.partitions(), assigned, revoked, &m.said)
	}
	for i, n := range c.nodes {
		if n == nil {
			c.Logf("node %d does not run", i+1)
			continue
		}
		im := n.controller.Image()
		c.Logf("node %d at index %d: slot %+v, %s", i+1, im.Index(), im.Slot(fsm.SlotOf("g")), rowText(im))
		if v, err := n.groups.view("g"); err == nil {
			c.Logf("node %d coordinates it: %s", i+1, viewText(v))
		}
	}
}

// rowText is the row of the group without its history.
func rowText(im *fsm.Image) string {
	row, ok := im.Group("g")
	if !ok {
		return "no row"
	}
	r := *row
	r.History = nil
	return fmt.Sprintf("row %+v", r)
}

// viewText is the group as its coordinator shows it, a line for each member and for
// each transition that it remembers.
func viewText(v groupView) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s Epoch %d, assignment %d.", v.why, v.Epoch, v.AssignmentEpoch)
	for _, m := range v.Members {
		fmt.Fprintf(&b, "\nmember %s of %s: epoch %d, has %v, shall have %v, gives up %v, waits %t, session ends %s", m.ID, m.ClientID,
			m.Epoch, m.Assigned, m.Target, m.Revoking, m.Waiting, m.Deadline.UTC().Format("15:04:05.000"))
	}
	for _, t := range v.history {
		fmt.Fprintf(&b, "\n%s %s -> %s, epoch %d: %s", t.At.UTC().Format("15:04:05.000"), t.From, t.To, t.Epoch, t.Cause)
	}
	return b.String()
}
