package chaos

import (
	"context"
	"slices"

	"github.com/weirmq/weir/integration/chaos/host"
)

// Need is what a kind of fault asks of the ground it happens on.
type Need int

// The needs, each including those before it.
const (
	Anywhere Need = iota // loopback and no privileges
	Machines             // hosts that are separate to the kernel, with disks
)

// Kind is one kind of fault.
type Kind struct {
	Name    string
	About   string // what happens, in a few words
	Targets []Target
	Needs   Need
	// Mixes tells that it may happen while another fault does.
	Mixes bool
	// Whole tells that all replicas must be in sync before it, since it takes a copy away.
	Whole bool
	// Final tells that its victims do not return, so that it comes last.
	Final bool
	// Known says what is known to go wrong. Such a kind happens only where it is asked
	// for by name.
	Known string
	// Mild tells that its victims go on to serve.
	Mild bool
	// Waits tells that its end waits for nodes that other faults of the step may hold, so that it
	// comes after theirs.
	Waits bool
	// Missing says what it lacks on this machine beside Needs; nil stands for nothing.
	Missing func() error

	// inflict begins the fault at the victims and returns what ends it.
	inflict func(ctx context.Context, r *Run, victims []*host.Host) (heal func(context.Context) error, err error)
}

// Kinds lists all kinds of faults.
func Kinds() []Kind {
	one := []Target{Leader, Follower, Controller, Coordinator, Minority}
	anyone := append(slices.Clone(one), Majority, All)
	cluster := []Target{Nobody}
	return []Kind{
		{Name: "kill", About: "SIGKILL, restarted after a while", Targets: anyone, Mixes: true, inflict: kill},
		{Name: "kill-back", About: "SIGKILL, restarted at once", Targets: anyone, Mixes: true, Mild: true, inflict: killBack},
		{Name: "term", About: "SIGTERM, restarted after a while", Targets: one, Mixes: true, inflict: term},
		{Name: "pause", About: "SIGSTOP, SIGCONT", Targets: anyone, Mixes: true, inflict: pause},
		{Name: "cut", About: "cut off from everybody", Targets: one, Mixes: true, inflict: cutOff},
		{Name: "cut-peers", About: "cut off from the other nodes, not from clients", Targets: anyone, Mixes: true, inflict: cutPeers},
		{Name: "cut-refused", About: "refused by the other nodes' firewalls, and they by its own", Targets: anyone, Needs: Machines, Mixes: true, inflict: refusePeers},
		{Name: "cut-in", About: "hears nothing, is heard", Targets: one, Mixes: true, inflict: cutIn},
		{Name: "cut-out", About: "hears, is not heard", Targets: one, Mixes: true, inflict: cutOut},
		{Name: "cut-pair", About: "one pair of nodes cannot talk", Targets: one, Mixes: true, Mild: true, inflict: cutPair},
		{Name: "cut-clients", About: "cut off from clients, not from nodes", Targets: one, Mixes: true, inflict: cutClients},
		{Name: "slow", About: "sends 40 KB/s at most", Targets: one, Mixes: true, Mild: true, inflict: slow},
		{Name: "delay", About: "300 ms each way to clients", Targets: anyone, Mixes: true, Mild: true, inflict: delay},
		{Name: "reply-loss", About: "replies to clients vanish", Targets: one, Mixes: true, inflict: replyLoss},
		{Name: "clock-step", About: "the wall clock leaps an hour", Targets: anyone, Mixes: true, Mild: true, Missing: host.CanMoveClocks, inflict: clockStep},
		{Name: "clock-strobe", About: "the wall clock goes to and fro", Targets: anyone, Mixes: true, Mild: true, Missing: host.CanMoveClocks, inflict: clockStrobe},
		{Name: "corrupt-log", About: "bits of a segment flip while the node is down", Targets: one, Whole: true, inflict: corrupt(segments)},
		{Name: "corrupt-side", About: "indexes, checkpoints and snapshots are damaged while the node is down", Targets: one, Whole: true, inflict: corrupt(sideFiles)},
		{Name: "rollback", About: "4 KiB pieces of files go back in time while the node is down", Targets: one, Whole: true, inflict: rollback},
		{Name: "cut-tail", About: "the last segments lose their ends while the node is down", Targets: one, Whole: true, inflict: cutTails},
		{Name: "cut-cold", About: "closed segments lose their ends while the node is down", Targets: one, Whole: true, inflict: cutCold},
		{Name: "wipe-partitions", About: "all partition folders are removed while the node is down", Targets: one, Whole: true, inflict: wipePartitions},
		{Name: "wipe-live", About: "all partition folders are removed under a running node", Targets: one, Whole: true, inflict: wipeLive},
		{Name: "roll", About: "SIGTERM and restart of each node in turn", Targets: cluster, Mild: true, inflict: roll},
		{Name: "elect", About: "leaders move away with a SIGTERM, and back by an election", Targets: cluster, Mild: true, inflict: elect},
		{Name: "reassign", About: "replicas move to other nodes, or go and come back", Targets: cluster, Mixes: true, Mild: true, inflict: reassign},
		{Name: "members", About: "a vote is taken, or moved, and given back", Targets: []Target{Controller, Minority}, Mixes: true, Waits: true, inflict: members},
		{Name: "join", About: "a node joins, gets a vote, and leaves for good", Targets: cluster, Mixes: true, Mild: true, Waits: true, inflict: join},
		{Name: "churn", About: "a topic is deleted and made again, with a node cut off", Targets: one, Mild: true, inflict: churn},
		{Name: "disk-full", About: "no room on the disk", Targets: one, Needs: Machines, inflict: diskFull},
		{Name: "disk-dead", About: "every call of the disk fails", Targets: one, Needs: Machines, Whole: true, inflict: diskDead},
		{Name: "power-cut", About: "unsynced writes are lost, the kernel starts anew", Targets: one, Needs: Machines, Whole: true, inflict: powerCut},
		{Name: "io-error", About: "chosen calls of the disk fail", Targets: one, Needs: Machines, Whole: true, inflict: ioError},
		{Name: "io-stall", About: "chosen calls of the disk hang", Targets: one, Needs: Machines, Whole: true, inflict: ioStall},
		{Name: "corrupt-raft", About: "the Raft store is damaged while the node is down", Targets: []Target{Follower, Controller}, Whole: true, Final: true, inflict: corruptRaft},
		{Name: "wipe", About: "the whole data folder is removed while the node is down", Targets: []Target{Follower, Leader}, Whole: true, Final: true, inflict: wipe},
	}
}

// Default lists the kinds that nothing is known to go wrong under.
func Default() []Kind {
	return slices.DeleteFunc(Kinds(), func(k Kind) bool { return k.Known != "" })
}

// KindsNamed picks kinds by name.
func KindsNamed(names ...string) ([]Kind, error) {
	var out []Kind
	for _, n := range names {
		k, err := kindNamed(n)
		if err != nil {
			return nil, err
		}
		out = append(out, k)
	}
	return out, nil
}
