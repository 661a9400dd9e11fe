package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
)

const (
	// barrierTimeout bounds the queueing of a new leader's barrier.
	barrierTimeout = time.Second
	// handOffPause is how often a stopping broker's leaderships are looked at again.
	handOffPause = 100 * time.Millisecond
	// eventQueue is how many events wait for the loop: a few for each broker.
	eventQueue = 256
)

// term is one stretch of this node's leadership. Its loop decides from the newest Image and
// from soft state that dies with it; everything it decides goes through the log.
type term struct {
	n      *Node
	log    hclog.Logger
	tenure tenure
	events chan func()
	began  time.Time // when this node had caught up as the controller
	// ended closes when the loop has returned; nothing is decided after it.
	ended chan struct{}
	// ctx ends with the loop and stops probes and verifications.
	ctx context.Context

	// What follows belongs to the loop's goroutine.
	live      *elect.Liveness
	beats     []beat // arrived, and not yet covered by a verification of the leadership
	verifying bool
	probing   map[fsm.BrokerID]bool
	agree     map[fsm.BrokerID]bool // whether a broker's Image was last found equal to ours
	elected   *fsm.Image            // the Image that elections were last made from
	moved     *fsm.Image            // the Image that complete reassignments were last looked for in
	recovery  *elect.Recovery
	handedOff time.Time
}

// beat is a heartbeat that waits for the leadership to be verified.
type beat struct {
	reply    heartbeatReply
	answered chan<- beatAnswer
}

type beatAnswer struct {
	reply *heartbeatReply
	err   error
}

// runTerms leads whenever Raft says so, until the node closes.
func (n *Node) runTerms() {
	for n.ctx.Err() == nil {
		tenure, changed := n.lead.get()
		if tenure.leading {
			t := &term{
				n: n, log: n.log.Named("controller"), tenure: tenure,
				events: make(chan func(), eventQueue), ended: make(chan struct{}),
				probing: make(map[fsm.BrokerID]bool), agree: make(map[fsm.BrokerID]bool),
				recovery: elect.NewRecovery(questionPause),
			}
			if err := t.run(); err != nil && n.ctx.Err() == nil {
				t.log.Warn("the term as controller ended", "error", err)
			}
			if n.lead.holds(tenure) {
				_ = n.awaitLeader(n.ctx, changed) // still leader: begin anew after a breath
			}
			continue
		}
		select {
		case <-changed:
		case <-n.ctx.Done():
		}
	}
}

// run is one term: barrier, soft state anew, then decisions until the leadership ends.
func (t *term) run() error {
	ctx, cancel := context.WithCancel(t.n.ctx)
	defer cancel()
	t.ctx = ctx
	var barrier raft.Future
	submit := func() raft.Future {
		barrier = t.n.raft.Barrier(barrierTimeout)
		return barrier
	}
	if err := t.n.awaitRaft(ctx, submit, "catch up with the metadata"); err != nil {
		return err
	}
	if b, ok := barrier.(raft.IndexFuture); ok {
		t.n.transport.pusher.commit(b.Index())
	}
	if err := t.nameCluster(); err != nil {
		return err
	}
	if err := t.finishRecovery(); err != nil {
		return err
	}
	im := t.n.Image()
	t.live = elect.NewLiveness(t.n.cfg.Session)
	t.live.Takeover(time.Now(), im)
	t.began = time.Now()
	t.n.term.Store(t)
	t.n.lead.decides(t.tenure)
	defer func() {
		t.n.term.CompareAndSwap(t, nil)
		close(t.ended)
	}()
	t.log.Info("this node is the controller", "index", im.Index(), "brokers", t.liveCount(im))
	for b := range im.Brokers() {
		if !b.Fenced {
			t.probe(b.ID)
		}
	}
	t.judgeFormer()
	t.expelRemoved()
	return t.loop()
}

func (t *term) liveCount(im *fsm.Image) int {
	count := 0
	for b := range im.Brokers() {
		if !b.Fenced {
			count++
		}
	}
	return count
}

func (t *term) loop() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		_, leadChanged := t.n.lead.get()
		if !t.n.lead.holds(t.tenure) {
			return nil
		}
		changed := t.n.machine.Changed()
		next, err := t.act()
		if err != nil {
			return err
		}
		timer.Reset(next)
		select {
		case <-leadChanged:
		case <-changed:
		case fn := <-t.events:
			fn()
		case <-timer.C:
		case <-t.ctx.Done():
			return nil
		}
	}
}

// act does all that time and the newest Image call for, and returns how long it may sleep.
func (t *term) act() (time.Duration, error) {
	if err := t.fenceExpired(); err != nil {
		return 0, err
	}
	if err := t.electLeaders(); err != nil {
		return 0, err
	}
	if err := t.finishMoves(); err != nil {
		return 0, err
	}
	if slots := slotChanges(t.n.Image()); len(slots) > 0 {
		if _, err := t.commit(slots...); err != nil {
			return 0, err
		}
	}
	again, err := t.recoverLeaders()
	if err != nil {
		return 0, err
	}
	next, err := t.handOver()
	if err != nil {
		return 0, err
	}
	t.verify()
	return min(next, again, max(0, time.Until(t.live.WakeAt()))), nil
}

// nameCluster makes the cluster id part of the replicated state, once.
func (t *term) nameCluster() error {
	switch id := t.n.Image().ClusterID(); id {
	case t.n.id.ClusterID:
		return nil
	case "":
		_, err := t.commit(fsm.InitCluster{ClusterID: t.n.id.ClusterID})
		return err
	default:
		err := fmt.Errorf("the metadata belongs to cluster %s and this folder to cluster %s", id, t.n.id.ClusterID)
		t.n.exit(err)
		return err
	}
}

// commit gets commands into the log as one entry and returns their results.
func (t *term) commit(commands ...fsm.Command) (appliedEntry, error) {
	return t.n.apply(t.ctx, fsm.EncodeEntry(nil, commands))
}

// fenceExpired fences the brokers whose session is over, with the elections that follow.
func (t *term) fenceExpired() error {
	var fences []fsm.Command
	for _, f := range t.live.Expired(time.Now(), t.n.Image()) {
		fences = append(fences, f)
		t.log.Warn("the session of a broker ended", "broker", f.ID, "epoch", f.Epoch)
	}
	return t.commitWithElections(fences...)
}

// commitWithElections commits facts together with the leaders and slot owners that they call
// for. Those are decided on the Image that the facts will produce, and guarded by its epochs:
// should something else come in between, Apply skips them and the loop decides again.
func (t *term) commitWithElections(facts ...fsm.Command) error {
	if len(facts) == 0 {
		return nil
	}
	im := t.n.Image()
	for _, f := range facts {
		im, _ = fsm.Apply(im, im.Index()+1, f)
	}
	entries := packChanges(append(facts, slotChanges(im)...), elect.Leaders(im))
	for _, entry := range entries {
		if _, err := t.commit(entry...); err != nil {
			return err
		}
	}
	return nil
}

// slotChanges is the command that spreads the slots over the brokers; none when they are.
func slotChanges(im *fsm.Image) []fsm.Command {
	items := elect.Slots(im)
	if len(items) == 0 {
		return nil
	}
	return []fsm.Command{fsm.AssignSlots{Items: items}}
}

// packChanges splits leader changes into entries within the size limit; the facts go first.
func packChanges(facts []fsm.Command, items []fsm.LeaderChange) [][]fsm.Command {
	var entries [][]fsm.Command
	entry, size := facts, 0
	for len(items) > 0 {
		n := min(len(items), changesPerCommand)
		c := fsm.ChangeLeaders{Items: items[:n]}
		items = items[n:]
		s := len(fsm.EncodeCommand(nil, c))
		if len(entry) > 0 && size+s > entrySizeMax {
			entries = append(entries, entry)
			entry, size = nil, 0
		}
		entry, size = append(entry, c), size+s
	}
	if len(entry) > 0 {
		entries = append(entries, entry)
	}
	return entries
}

// changesPerCommand keeps one command of leader changes below the size of an entry even with
// the longest lists: some 40 bytes and up to 127 ids of 5 bytes each.
const changesPerCommand = 512

// electLeaders gives leaders to partitions that have none and could have one. It looks again
// only when a broker, such a partition or its topic's configs changed.
func (t *term) electLeaders() error {
	im := t.n.Image()
	if t.elected != nil && !elect.MayDiffer(t.elected, im) {
		t.elected = im
		return nil
	}
	t.elected = im
	t.recovery.Update(im)
	for _, entry := range packChanges(nil, elect.Leaders(im)) {
		if _, err := t.commit(entry...); err != nil {
			return err
		}
	}
	return nil
}

// handOver moves what stopping brokers still lead, as their followers become able to take it.
func (t *term) handOver() (time.Duration, error) {
	im, next := t.n.Image(), time.Hour
	for b := range im.Brokers() {
		if !b.Stopping || b.Fenced {
			continue
		}
		if wait := handOffPause - time.Since(t.handedOff); wait > 0 {
			return wait, nil
		}
		for _, entry := range packChanges(nil, elect.HandOff(im, b.ID)) {
			if _, err := t.commit(entry...); err != nil {
				return 0, err
			}
		}
		next = handOffPause
	}
	if next == handOffPause {
		t.handedOff = time.Now()
	}
	return next, nil
}

// verify confirms the leadership for the heartbeats that have arrived and then answers them.
// Without it a deposed controller that has not noticed would keep a broker's session alive
// while the new one fences that broker.
func (t *term) verify() {
	if t.verifying || len(t.beats) == 0 {
		return
	}
	batch := t.beats
	t.beats, t.verifying = nil, true
	t.n.goFunc(func() {
		err := t.n.verifyLeader(t.ctx)
		for _, b := range batch {
			if err != nil {
				b.answered <- beatAnswer{err: fmt.Errorf("%w: %w", errNotController, err)}
			} else {
				b.answered <- beatAnswer{reply: &b.reply}
			}
		}
		t.post(t.ctx, func() { t.verifying = false })
	})
}

// post hands the loop something to do; false means that it ended first.
func (t *term) post(ctx context.Context, fn func()) bool {
	select {
	case t.events <- fn:
		return true
	case <-t.ended:
	case <-ctx.Done():
	}
	return false
}

// do runs fn on the loop and waits for it.
func (t *term) do(ctx context.Context, fn func() error) error {
	done := make(chan error, 1)
	if !t.post(ctx, func() { done <- fn() }) {
		return errNotController
	}
	select {
	case err := <-done:
		return err
	case <-t.ended:
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	default:
		return fmt.Errorf("%w: the controller stopped deciding", ErrUnknown)
	}
}
