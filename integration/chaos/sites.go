package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/weirmq/weir/integration/chaos/host"
)

// eachSite lets each call of a leader's disk fail, then hang.
func eachSite(ctx context.Context, r *Run) error {
	for _, s := range errorSites() {
		if err := r.failing(ctx, s); err != nil {
			return err
		}
	}
	for _, s := range stallSites() {
		if err := r.hanging(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// failing lets one site of a leader fail for a while.
func (r *Run) failing(ctx context.Context, s site) error {
	victim, err := r.taintedLeader(ctx)
	if err != nil {
		return err
	}
	r.faults++
	f := r.strike("io-error", s.String())
	defer func() { r.over(f) }()
	r.take(f, []*host.Host{victim})
	r.spoil(victim, s, func(op, path string) error {
		if s.is(op, path) {
			return s.err
		}
		return nil
	})
	return errors.Join(r.sleep(ctx, 6*time.Second), victim.Clean())
}

const (
	// hitWait is how long a call may take to come by that is to hang.
	hitWait = 20 * time.Second
	// leadSeen is how many answers in a row must call a node a leader.
	leadSeen = 10
	// leaveWait is how long a node whose disk hangs may keep a leadership:
	// weir.disk.timeout.ms, a session, and room for looking.
	leaveWait = 15 * time.Second
	// ackWait is how long clients may take then to be acknowledged in every partition.
	ackWait = 15 * time.Second
)

// hanging lets one site of a leader hang until its leaderships have moved and every
// partition takes records, which must happen while it hangs. A node whose log hung comes
// back by itself.
func (r *Run) hanging(ctx context.Context, s site) error {
	victim, err := r.taintedLeader(ctx)
	if err != nil {
		return err
	}
	r.faults++
	f := r.strike("io-stall", s.String())
	defer func() { r.over(f) }()
	r.take(f, []*host.Host{victim})
	over, hit := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.spoil(victim, s, func(op, path string) error {
		if s.is(op, path) {
			once.Do(func() { close(hit) })
			<-over
		}
		return nil
	})
	err = r.outlive(ctx, victim, s, hit)
	close(over)
	if err == nil && strings.HasSuffix(s.part, ".log") {
		if e := r.awaitWhole(ctx, r.patience); e != nil {
			r.book.Problem("%s of node %d hung, and the node has not come back by itself: %v", s, victim.ID, e)
		}
	}
	return errors.Join(err, victim.Clean())
}

// outlive checks that the cluster goes on while a call of the victim hangs. An error
// means that it could not be found out.
func (r *Run) outlive(ctx context.Context, victim *host.Host, s site, hit <-chan struct{}) error {
	select {
	case <-hit:
	case <-time.After(hitWait):
		r.note("no %s came by in %s", s, hitWait)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	began := time.Now()
	left, err := r.within(ctx, leaveWait, func() bool {
		led, without, err := r.leaderships(ctx, victim)
		return err == nil && led+without == 0
	})
	if !left {
		r.book.Problem("%s of node %d hung, and the node still leads after %s", s, victim.ID, leaveWait)
		return err
	}
	moved := time.Now()
	var missing []string
	if acked, err := r.within(ctx, ackWait, func() bool { missing = r.silent(moved); return len(missing) == 0 }); !acked {
		r.book.Problem("%s of node %d hung, its leaderships moved after %s, and %s later nothing is acknowledged in %s", s, victim.ID,
			moved.Sub(began).Round(10*time.Millisecond), ackWait, strings.Join(missing, ", "))
		return err
	}
	r.note("node %d: %s hangs; it leads nothing after %s, all partitions take records after %s", victim.ID, s,
		moved.Sub(began).Round(10*time.Millisecond), time.Since(began).Round(10*time.Millisecond))
	return nil
}

// within waits for a condition and tells whether it came to hold in time.
func (r *Run) within(ctx context.Context, limit time.Duration, holds func() bool) (bool, error) {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if holds() {
			return true, nil
		}
		if err := r.sleep(ctx, 50*time.Millisecond); err != nil {
			return false, err
		}
	}
	return false, nil
}

// leaderships counts the partitions that a host leads, and those without a leader.
func (r *Run) leaderships(ctx context.Context, h *host.Host) (led, without int, err error) {
	m, err := r.metadata(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			switch {
			case p.Leader == int32(h.ID):
				led++
			case p.Leader < 0:
				without++
			}
		}
	}
	return led, without, nil
}

// silent lists the partitions in which nothing has been acknowledged since then. The topic
// that comes and goes has a producer that may be between two incarnations.
func (r *Run) silent(since time.Time) []string {
	var out []string
	for _, t := range r.topics {
		for p := range int32(t.Partitions) {
			if t != r.churning.topic && r.book.LastAck(t.Key(p)).Before(since) {
				out = append(out, fmt.Sprintf("%s-%d", t.Name, p))
			}
		}
	}
	return out
}

// taintedLeader puts a leader's folder behind one that can be struck, and gives it back
// the leaderships that the restart for it has cost.
func (r *Run) taintedLeader(ctx context.Context) (*host.Host, error) {
	victim := r.victims(ctx, Leader)[0]
	if err := r.awaitWhole(ctx, r.patience); err != nil {
		return nil, err
	}
	if err := victim.Taint(); err != nil {
		return nil, err
	}
	if err := r.awaitWhole(ctx, r.patience); err != nil {
		return nil, err
	}
	if _, err := elect(ctx, r, nil); err != nil {
		return nil, err
	}
	seen := 0 // in a row: any node may answer, and one that has just started knows the past
	back, err := r.within(ctx, r.patience, func() bool {
		led, _, err := r.leaderships(ctx, victim)
		seen++
		if err != nil || led == 0 {
			seen = 0
		}
		return seen == leadSeen
	})
	if err == nil && !back {
		err = fmt.Errorf("node %d was not elected again in %s", victim.ID, r.patience)
	}
	return victim, err
}

// spoil makes hook decide about the calls of a host.
func (r *Run) spoil(h *host.Host, s site, hook host.Hook) {
	r.note("node %d: %s (%v)", h.ID, s, s.err)
	h.Note("%s (%v)", s, s.err)
	h.Errors(hook)
}
