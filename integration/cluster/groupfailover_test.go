package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	failoverGroup      = "failover"
	failoverMembers    = 2
	failoverPartitions = 4
	probePatience      = 300 * time.Millisecond // for one commit of the probe, and one dial
)

// TestGroupFailover takes the coordinator from a group with live franz-go members, of both
// protocols: by SIGKILL, whose port refuses afterwards, and by SIGSTOP, whose port does not.
// No member may notice: no partition is revoked, lost or given, and member, generation and
// assignment stay. It reports for how long no commit of a member was taken.
func TestGroupFailover(t *testing.T) {
	trials := scaleOf(t, "WEIR_TRIALS", 1)
	r := newGroupRig(t, time.Duration(trials)*4*time.Minute+3*time.Minute, failoverPartitions, "group.consumer.heartbeat.interval.ms=500")
	id := r.topicID()
	for _, p := range []struct {
		name string
		opts []kgo.Opt
	}{
		{"classic", []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}},
		{"consumer", []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}},
	} {
		w := r.watchGroup(failoverGroup+"-"+p.name, p.opts)
		for _, fault := range []string{"kill", "freeze"} {
			var gaps []time.Duration
			for trial := range trials {
				gaps = append(gaps, w.failover(trial, fault, id))
			}
			slices.Sort(gaps)
			t.Logf("%-9s %-7s trials %d, without a commit p50 %d ms max %d ms; rebalances 0, but for %d by clients that gave up a dial", p.name, fault, trials,
				gaps[len(gaps)/2].Milliseconds(), gaps[len(gaps)-1].Milliseconds(), w.gaveUp)
			w.gaveUp = 0
		}
		w.close()
	}
}

// watched is a group whose members note all that happens to them.
type watched struct {
	*groupRig
	group   string
	members []*watchedMember
	gaveUp  int // trials in which a client did, see watchedMember.gaveUp
}

// watchedMember is one franz-go client.
type watchedMember struct {
	cl      *kgo.Client
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	has    map[int32]bool // guarded by mu
	events []string       // that its callbacks told; guarded by mu
	beats  map[int32]int  // heartbeats answered, by node; guarded by mu

	refused bool // a session ended because a dial was refused; guarded by mu
}

// OnBrokerE2E counts heartbeats that were answered, of both protocols.
func (m *watchedMember) OnBrokerE2E(meta kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if e2e.Err() == nil && (key == 12 || key == 68) {
		m.mu.Lock()
		m.beats[meta.NodeID]++
		m.mu.Unlock()
	}
}

func (m *watchedMember) event(what string, parts map[string][]int32, owns bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, fmt.Sprintf("%s %v", what, parts[groupTopic]))
	for _, p := range parts[groupTopic] {
		if owns {
			m.has[p] = true
		} else {
			delete(m.has, p)
		}
	}
}

// failed notes why the client gave up its session, of which it tells by a fetch.
func (m *watchedMember) failed(ctx context.Context, err error) {
	var session *kgo.ErrGroupSession
	if ctx.Err() != nil || !errors.As(err, &session) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, fmt.Sprintf("failed: %v", session.Err))
	m.refused = m.refused || strings.Contains(session.Err.Error(), "connection refused")
}

// gaveUp says that the client left its session of its own accord since it was last
// asked: franz-go asks any broker for the coordinator, and gives up when it happens on
// a dead one twice in a row, which no broker can help.
func (m *watchedMember) gaveUp() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	gave := m.refused
	m.refused = false
	return gave
}

// state is what the member is, and has.
func (m *watchedMember) state() (id string, generation int32, has []int32) {
	id, generation = m.cl.GroupMetadata()
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.has {
		has = append(has, p)
	}
	slices.Sort(has)
	return id, generation, has
}

// commit commits what the member has, as consumers do. Without commits franz-go's
// heartbeats of the consumer protocol ask a dead node for ever: it looks for another
// coordinator only when a request that is tried again fails to reach the one it knows.
func (m *watchedMember) commit(ctx context.Context) {
	for ctx.Err() == nil {
		_, _, has := m.state()
		offsets := map[int32]kgo.EpochOffset{}
		for _, p := range has {
			offsets[p] = kgo.EpochOffset{Epoch: -1}
		}
		if len(offsets) > 0 {
			m.cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{groupTopic: offsets}, nil)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (r *groupRig) watchGroup(group string, opts []kgo.Opt) *watched {
	r.t.Helper()
	w := &watched{groupRig: r, group: group}
	for range failoverMembers {
		m := &watchedMember{has: map[int32]bool{}, beats: map[int32]int{}}
		cl, err := r.Client(append([]kgo.Opt{
			kgo.ConsumerGroup(group), kgo.ConsumeTopics(groupTopic), kgo.HeartbeatInterval(500 * time.Millisecond), kgo.DisableAutoCommit(),
			kgo.RequestTimeoutOverhead(2 * time.Second), kgo.WithHooks(m),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { m.event("assigned", p, true) }),
			kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { m.event("revoked", p, false) }),
			kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { m.event("lost", p, false) }),
		}, opts...)...)
		if err != nil {
			r.t.Fatal(err)
		}
		m.cl = cl
		ctx, cancel := context.WithCancel(r.ctx)
		m.stop = cancel
		m.running.Go(func() {
			for ctx.Err() == nil {
				cl.PollFetches(ctx).EachError(func(_ string, _ int32, err error) { m.failed(ctx, err) })
			}
		})
		m.running.Go(func() { m.commit(ctx) })
		w.members = append(w.members, m)
	}
	w.await("the members share the topic", w.shared)
	return w
}

// shared tells what is missing until the members have all partitions, as many each, and one generation.
func (w *watched) shared() error {
	_, first, _ := w.members[0].state()
	all := map[int32]bool{}
	for _, m := range w.members {
		_, generation, has := m.state()
		if generation != first || len(has) != failoverPartitions/failoverMembers {
			return fmt.Errorf("a member of generation %d has %v", generation, has)
		}
		for _, p := range has {
			all[p] = true
		}
	}
	if len(all) != failoverPartitions {
		return fmt.Errorf("%d partitions are owned", len(all))
	}
	return nil
}

func (w *watched) close() {
	for _, m := range w.members {
		m.stop()
		m.running.Wait()
		m.cl.Close()
	}
}

// failover is one trial: the coordinator goes, another one takes over, the old one returns.
func (w *watched) failover(trial int, fault string, id [16]byte) time.Duration {
	w.t.Helper()
	w.await("every member has a steady coordinator", func() error { _, err := w.coordinator(w.group); return err })
	victim, err := w.coordinator(w.group)
	if err != nil {
		w.t.Fatal(err)
	}
	before := w.look()
	member, generation, _ := w.members[0].state()
	p := w.probe(member, generation, id)
	p.await(20)
	began := p.count() - 1
	end, begin := victim.Kill, func() error { return w.StartNode(victim) }
	if fault == "freeze" {
		end = func() error { return victim.Signal(syscall.SIGSTOP) }
		begin = func() error { return victim.Signal(syscall.SIGCONT) }
	}
	if err := end(); err != nil {
		w.t.Fatal(err)
	}
	p.await(50)
	gap := p.stop(began)
	if fault == "kill" { // franz-go keeps asking a node that is frozen, until it answers
		w.awaitBeats(victim.ID)
	}
	if err := begin(); err != nil {
		w.t.Fatal(err)
	}
	w.awaitBeats(nobody)
	if err := w.AwaitNodes(w.ctx, len(w.Nodes)); err != nil {
		w.t.Fatal(err)
	}
	if err := w.AwaitISR(w.ctx, w.cl, groupTopic, len(w.Nodes)); err != nil {
		w.t.Fatal(err)
	}
	gaveUp := false
	for _, m := range w.members {
		gaveUp = m.gaveUp() || gaveUp
	}
	switch after := w.look(); {
	case slices.Equal(after, before):
	case gaveUp:
		w.gaveUp++
		w.t.Logf("%s, trial %d, %s: a client could not dial the dead node and left its session: %q", w.group, trial, fault, after)
	default:
		w.t.Errorf("%s, trial %d, %s: the members were %q and are %q", w.group, trial, fault, before, after)
	}
	w.t.Logf("%s trial %d: %s of node %d: %d ms", w.group, trial, fault, victim.ID, gap.Milliseconds())
	return gap
}

// look is what each member is and has, and what has happened to it since it began.
func (w *watched) look() (out []string) {
	for _, m := range w.members {
		id, generation, has := m.state()
		m.mu.Lock()
		out = append(out, fmt.Sprintf("%s generation %d has %v after %q", id, generation, has, m.events))
		m.mu.Unlock()
	}
	return out
}

// nobody is the id of no node.
const nobody = -1

// awaitBeats waits until each member has had heartbeats answered by a node other than not.
func (w *watched) awaitBeats(not int32) {
	w.t.Helper()
	beats := func(m *watchedMember) (n int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for id, c := range m.beats {
			if id != not {
				n += c
			}
		}
		return n
	}
	for _, m := range w.members {
		had := beats(m)
		w.await("a member reaches its coordinator", func() error {
			if n := beats(m) - had; n < 2 {
				return fmt.Errorf("%d heartbeats", n)
			}
			return nil
		})
	}
}

// probe commits for a member every few milliseconds, at whichever node takes it. It shows
// when the cluster takes commits, without the pauses that a client makes between its tries.
type probe struct {
	*watched
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	acks []time.Time // guarded by mu
	err  error       // of the group, which no commit may get; guarded by mu
}

func (w *watched) probe(member string, generation int32, id [16]byte) *probe {
	ctx, cancel := context.WithCancel(w.ctx)
	p := &probe{watched: w, cancel: cancel, done: make(chan struct{})}
	req := groupCommit(w.group, id, member, generation)
	go func() { // ends with ctx; stop waits for it
		defer close(p.done)
		conns := map[int32]*wireConn{}
		defer func() {
			for _, c := range conns {
				_ = c.Close()
			}
		}()
		for next := 0; ctx.Err() == nil; {
			n := w.Nodes[next%len(w.Nodes)]
			err := p.try(conns, n, func(c *wireConn) error { return commitAs(c, probePatience, req) })
			switch {
			case err == nil:
				p.acked(nil)
				<-time.After(5 * time.Millisecond)
				continue
			case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.StaleMemberEpoch),
				errors.Is(err, kerr.FencedMemberEpoch), errors.Is(err, kerr.RebalanceInProgress), errors.Is(err, kerr.GroupIDNotFound):
				p.acked(err)
			}
			if next++; next%len(w.Nodes) == 0 {
				<-time.After(5 * time.Millisecond)
			}
		}
	}()
	return p
}

// try uses a kept connection to a node, or a new one.
func (p *probe) try(conns map[int32]*wireConn, n *Node, do func(*wireConn) error) error {
	c := conns[n.ID]
	if c == nil {
		var err error
		if c, err = dialWire(n.Client); err != nil {
			return err
		}
		conns[n.ID] = c
	}
	err := do(c)
	var code *kerr.Error
	if err != nil && !errors.As(err, &code) {
		_ = c.Close()
		delete(conns, n.ID)
	}
	return err
}

func (p *probe) acked(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.acks = append(p.acks, time.Now())
	} else if p.err == nil {
		p.err = err
	}
}

func (p *probe) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.acks)
}

// await waits for n more commits.
func (p *probe) await(n int) {
	p.t.Helper()
	want := p.count() + n
	p.groupRig.await("commits", func() error {
		if got := p.count(); got < want {
			return fmt.Errorf("%d of %d", got, want)
		}
		return nil
	})
}

// stop ends the probe and returns the longest time between two commits from number from on.
func (p *probe) stop(from int) (gap time.Duration) {
	p.t.Helper()
	p.cancel()
	<-p.done
	if p.err != nil {
		p.t.Errorf("a commit of a member was refused: %v", p.err)
	}
	for i := from + 1; i < len(p.acks); i++ {
		gap = max(gap, p.acks[i].Sub(p.acks[i-1]))
	}
	return gap
}
