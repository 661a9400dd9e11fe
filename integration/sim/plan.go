package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Plan is all of a run that is drawn before it begins. What is left to chance
// while it runs (delays, races) follows from Seed and from the plan.
type Plan struct {
	Seed  uint64
	Nodes int
	// Topics are created at the start.
	Topics []TopicPlan
	// Span is how long everything may fail.
	Span time.Duration
	// Fsync: all topics are created with durability fsync.
	Fsync bool
	// Group: there is a group that commits offsets.
	Group bool
	// LagMax is how long a follower may lag before it leaves the ISR.
	LagMax time.Duration
	// SegmentBytes is small, so that logs roll often.
	SegmentBytes int64
	// ControlLoss is how many of a thousand control messages are lost, and as many come twice.
	ControlLoss int
	// BadBytes is how many of a thousand feeds arrive with a broken bit.
	BadBytes int
	// Faults happen in order of time.
	Faults []Fault
	// More happen after Span, in order of time, for as long as a run has seen less
	// than enough: so that each seed is worth what all promise.
	More []Fault
}

// What each run of a plan with faults to spare must have seen.
const (
	enoughEvents = 5000
	enoughFaults = 20
	enoughAcked  = 500
)

// TopicPlan is one topic and who writes to it.
type TopicPlan struct {
	Name       string
	Partitions int
	Replicas   int
	MinISR     int  // 0: a majority
	Producers  int  // of each partition
	Fsync      bool // created with durability fsync, whatever the others are
	AppendTime bool `json:",omitempty"` // its leaders stamp the records
}

// FaultKind names a fault.
type FaultKind string

// The faults.
const (
	FaultCrash      FaultKind = "crash"       // the process ends; what it wrote stays
	FaultCrashAt    FaultKind = "crash-at"    // the same, in the middle of work on files
	FaultPower      FaultKind = "power"       // the machine stops; what was not synced is lost, or half of it
	FaultPowerAt    FaultKind = "power-at"    // the same, in the middle of work on files
	FaultWipe       FaultKind = "wipe"        // the node comes back with an empty disk
	FaultStop       FaultKind = "stop"        // controlled shutdown, then a start
	FaultPause      FaultKind = "pause"       // the process stands still
	FaultSlowDisk   FaultKind = "slow-disk"   // what touches the disk stands still, heartbeats go on
	FaultDiskError  FaultKind = "disk-error"  // a write, fsync or other call fails once
	FaultDiskFull   FaultKind = "disk-full"   // no room for a while
	FaultCut        FaultKind = "cut"         // one direction between two nodes loses everything
	FaultSplit      FaultKind = "split"       // both directions
	FaultIsolate    FaultKind = "isolate"     // from all other nodes, not from clients
	FaultWall       FaultKind = "wall"        // from all other nodes, not from clients, and dials are refused as if the process had ended
	FaultReset      FaultKind = "reset"       // the connections between two nodes break
	FaultSlowLink   FaultKind = "slow-link"   // messages from one node to another take long
	FaultController FaultKind = "controller"  // the Raft leader loses its office
	FaultLag        FaultKind = "lag"         // metadata reaches a node late
	FaultClientCut  FaultKind = "client-cut"  // clients can not reach a node
	FaultAnswers    FaultKind = "answers"     // answers of a node to clients are lost
	FaultRecreate   FaultKind = "recreate"    // a topic is deleted and made again
	FaultTrim       FaultKind = "trim"        // a leader moves its log start
	FaultLeaderKill FaultKind = "leader-kill" // the leader of a partition ends, and each that follows it, some times
	FaultLateChange FaultKind = "late-change" // ISR changes of a leader reach the controller late; whom one adds loses its disk meanwhile
	FaultClock      FaultKind = "clock"       // the clocks of clients step, forward or back, so timestamps do
	FaultStep       FaultKind = "step"        // the wall clock of a node steps, forward or back
	FaultBlackout   FaultKind = "blackout"    // all machines lose power at once, those without a process too
	FaultDisks      FaultKind = "disks"       // a member of an ISR stops in order, and all the others lose their disks or their power
	FaultDurability FaultKind = "durability"  // a topic's durability is changed
	FaultRelapse    FaultKind = "relapse"     // a blackout, after which some come back and lose their power, or disks, again
	FaultUnclean    FaultKind = "unclean"     // a blackout, after which an operator has those elect that are back
	FaultLeaderCut  FaultKind = "leader-cut"  // the leader of a partition is isolated from all nodes, not from clients
	FaultRejoin     FaultKind = "rejoin"      // a member of an ISR ends and comes back; what adds it is done after its leader gave up on that
	FaultRot        FaultKind = "rot"         // a process ends, and bits flip in its logs before it comes back
	FaultReassign   FaultKind = "reassign"    // a partition gets other replicas, then perhaps others again, or its own back
	FaultWaver      FaultKind = "waver"       // a topic's durability is changed and changed back, before what its leaders say of it is done
)

// Fault is one fault, with what it needs to be the same whatever happened before.
type Fault struct {
	At   time.Duration
	Kind FaultKind
	Node int           // index of the node; of the topic for FaultRecreate, FaultDurability and FaultWaver
	Peer int           // the other node, where there is one
	For  time.Duration // how long it lasts
	Seed uint64        // of its own choices
}

func (f Fault) String() string {
	return fmt.Sprintf("%v %s node=%d peer=%d for=%v seed=%d", f.At, f.Kind, f.Node+1, f.Peer+1, f.For, f.Seed)
}

// Times that hold for every run.
const (
	session     = 3 * time.Second
	heartbeat   = 500 * time.Millisecond
	callTimeout = 5 * time.Second
)

// weights says how often each fault is drawn.
var weights = []struct {
	kind   FaultKind
	weight int
}{
	{FaultCrash, 6}, {FaultCrashAt, 5}, {FaultPower, 6}, {FaultPowerAt, 7}, {FaultWipe, 3}, {FaultStop, 5},
	{FaultPause, 6}, {FaultSlowDisk, 4}, {FaultDiskError, 3}, {FaultDiskFull, 3}, {FaultCut, 6}, {FaultSplit, 5},
	{FaultIsolate, 6}, {FaultReset, 7}, {FaultSlowLink, 4}, {FaultController, 6}, {FaultLag, 6}, {FaultClientCut, 2},
	{FaultAnswers, 4}, {FaultRecreate, 3}, {FaultTrim, 3}, {FaultLeaderKill, 6}, {FaultLeaderCut, 6}, {FaultBlackout, 2}, {FaultDisks, 1}, {FaultClock, 2}, {FaultLateChange, 6},
}

// PlanFor draws the plan of a seed.
func PlanFor(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0x9a7))
	p := Plan{
		Seed: seed, Nodes: []int{3, 3, 3, 4, 5}[r.IntN(5)],
		Span: time.Duration(40+r.IntN(30)) * time.Second,
	}
	p.Fsync = r.IntN(4) == 0
	p.SegmentBytes, p.LagMax = []int64{1500, 4000, 16000}[r.IntN(3)], time.Duration(1500+r.IntN(2500))*time.Millisecond
	p.ControlLoss, p.BadBytes = []int{0, 5, 40}[r.IntN(3)], []int{0, 0, 10}[r.IntN(3)]
	p.Topics = drawTopics(r, p.Nodes)
	kinds := drawKinds(r)
	at := 4 * time.Second
	gap := int64(p.Span) / int64(22+r.IntN(14))
	for len(kinds) > 0 {
		at += time.Duration(r.Int64N(2*gap + 1))
		if at >= p.Span {
			break
		}
		p.Faults = append(p.Faults, drawFault(r, p, at, kinds[r.IntN(len(kinds))]))
	}
	p.drawDurability()
	p.drawRare()
	p.drawAimed()
	p.drawMoves()
	p.drawWalls()
	p.drawClocks()
	p.drawMore()
	return p
}

// drawRare adds what only some runs have: a group, and losses of a whole ISR out of
// which some come back only to be lost again, or an operator has the rest elect.
func (p *Plan) drawRare() {
	r := rand.New(rand.NewPCG(p.Seed, 0x4a4e))
	p.Group = r.IntN(4) == 0
	for _, kind := range []FaultKind{FaultRelapse, FaultUnclean} {
		if r.IntN(8) == 0 {
			at := 4*time.Second + time.Duration(r.Int64N(int64(p.Span-4*time.Second)))
			p.Faults = append(p.Faults, drawFault(r, *p, at, kind))
		}
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

// drawAimed adds what hits the rule it is for only if it is aimed: several faults that
// hardly ever meet by chance, and bits that flip where it costs nothing.
func (p *Plan) drawAimed() {
	r := rand.New(rand.NewPCG(p.Seed, 0xa13))
	for _, kind := range []FaultKind{FaultRejoin, FaultWaver, FaultRot} {
		if r.IntN(4) > 0 {
			continue
		}
		for range 1 + r.IntN(2) {
			at := 5*time.Second + time.Duration(r.Int64N(int64(p.Span-5*time.Second)))
			p.Faults = append(p.Faults, drawFault(r, *p, at, kind))
		}
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

// drawMoves has partitions get other replicas in half of the runs.
func (p *Plan) drawMoves() {
	r := rand.New(rand.NewPCG(p.Seed, 0x4ea5))
	if r.IntN(2) == 0 {
		return
	}
	for range 2 + r.IntN(8) {
		at := 4*time.Second + time.Duration(r.Int64N(int64(p.Span-4*time.Second)))
		p.Faults = append(p.Faults, drawFault(r, *p, at, FaultReassign))
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

// drawMore draws the faults of a run in which too little happens: of all kinds.
func (p *Plan) drawMore() {
	r := rand.New(rand.NewPCG(p.Seed, 0x30))
	at := p.Span
	for range 60 {
		at += 500*time.Millisecond + time.Duration(r.Int64N(int64(3*time.Second)))
		p.More = append(p.More, drawFault(r, *p, at, weights[r.IntN(len(weights))].kind))
	}
}

// drawDurability makes one topic among others durable, has durabilities changed
// meanwhile, and the power of all machines cut where that may cost nothing.
func (p *Plan) drawDurability() {
	r := rand.New(rand.NewPCG(p.Seed, 0xd0))
	if r.IntN(4) == 0 {
		p.Topics[r.IntN(len(p.Topics))].Fsync = true
	}
	add := func(kind FaultKind) {
		at := 4*time.Second + time.Duration(r.Int64N(int64(p.Span-4*time.Second)))
		p.Faults = append(p.Faults, drawFault(r, *p, at, kind))
	}
	if r.IntN(4) == 0 {
		for range 1 + r.IntN(4) {
			add(FaultDurability)
		}
	}
	if p.Fsync {
		for range r.IntN(3) {
			add(FaultBlackout)
		}
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

func drawTopics(r *rand.Rand, nodes int) []TopicPlan {
	topics := []TopicPlan{{Name: "orders", Partitions: 1 + r.IntN(2), Replicas: 3, Producers: 1 + r.IntN(2)}}
	switch r.IntN(4) {
	case 0:
		topics = append(topics, TopicPlan{Name: "pair", Partitions: 1, Replicas: 2, Producers: 1})
	case 1:
		topics = append(topics, TopicPlan{Name: "loose", Partitions: 1, Replicas: 3, MinISR: 1, Producers: 1})
	case 2:
		if nodes >= 5 {
			topics = append(topics, TopicPlan{Name: "wide", Partitions: 1, Replicas: 5, Producers: 1})
		}
	}
	return topics
}

// drawKinds picks which faults a run can have: all, or a few of them often. The
// list holds a kind as often as its weight says.
func drawKinds(r *rand.Rand) []FaultKind {
	var all []FaultKind
	for _, w := range weights {
		for range w.weight {
			all = append(all, w.kind)
		}
	}
	if r.IntN(3) > 0 {
		return all
	}
	var some []FaultKind
	for range 3 + r.IntN(5) {
		some = append(some, all[r.IntN(len(all))])
	}
	return some
}

func drawFault(r *rand.Rand, p Plan, at time.Duration, kind FaultKind) Fault {
	f := Fault{At: at, Kind: kind, Node: r.IntN(p.Nodes), Seed: r.Uint64()}
	f.Peer = (f.Node + 1 + r.IntN(p.Nodes-1)) % p.Nodes
	short := time.Duration(50+r.IntN(1500)) * time.Millisecond
	long := time.Duration(1000+r.IntN(7000)) * time.Millisecond
	f.For = long
	switch kind {
	case FaultCrash, FaultCrashAt, FaultPower, FaultPowerAt, FaultLeaderKill, FaultStop, FaultReset, FaultSlowDisk:
		if r.IntN(2) == 0 {
			f.For = short
		}
	case FaultSlowLink, FaultAnswers:
		f.For = short + long/2
	case FaultLateChange:
		f.For = 2 * long
	case FaultRecreate, FaultDurability, FaultWaver:
		f.Node = r.IntN(len(p.Topics))
	}
	return f
}

// String lists the plan, a fault a line.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d nodes, %v, lag limit %v, fsync=%v, group=%v, segments of %d bytes, control loss %d/1000, bad bytes %d/1000\n",
		p.Seed, p.Nodes, p.Span, p.LagMax, p.Fsync, p.Group, p.SegmentBytes, p.ControlLoss, p.BadBytes)
	for _, t := range p.Topics {
		fmt.Fprintf(&b, "topic %s: %d partitions of %d replicas, min ISR %d, %d producers each, fsync=%v, append time=%v\n", t.Name, t.Partitions, t.Replicas, t.MinISR, t.Producers, t.Fsync, t.AppendTime)
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "%v\n", f)
	}
	return b.String()
}
