package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/weirmq/weir/integration/chaos/host"
)

// Scenario is a script of faults that aims at known hazards. A name of a letter and a
// number is that of the script in the list of hazards that the project keeps.
type Scenario struct {
	Name  string
	About string
	Needs Need
	// Nodes is how many it takes at least; 0 for any number.
	Nodes int
	// Loopback tells that it needs the proxies in front of the peer ports.
	Loopback bool
	// Configs are set for every topic.
	Configs map[string]*string
	// MayLose tells that the documentation names its faults as such that lose
	// acknowledged records: then the report says what was lost, and that is no failure.
	MayLose bool
	// Missing says what the product lacks for it, "" when it can be played.
	Missing string

	play func(ctx context.Context, r *Run) error
}

// Scenarios lists the scenarios.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "S1", About: "a leader is cut off from its followers, not from clients, and then killed", play: isolateThenKill},
		{Name: "S2", About: "leaders are killed fifty times, each at its first acknowledgement", play: func(ctx context.Context, r *Run) error { return pingPong(ctx, r, 50) }},
		{Name: "S3", About: "the last replica standing loses its power and comes back first", Needs: Machines, play: lastStanding},
		{Name: "S4", About: "a follower is emptied while its way into the ISR is under way", Loopback: true, play: emptyInRace},
		{Name: "S5", About: "a leader freezes for two sessions, with requests in its sockets", play: freeze},
		{Name: "S6", About: "a topic is deleted and made again and again; then a node's metadata goes back in time", play: deleteAndRecreate},
		{Name: "S7", About: "files of one node are damaged, and then the others are taken away in turn", play: corruptMinority},
		{Name: "S8", About: "each call of the disk fails, then hangs, in turn", Needs: Machines, play: eachSite},
		{Name: "S9", About: "replies are lost while leaders fail", play: dropReplies},
		{Name: "S10", About: "the end of a transaction is late", Missing: "transactions"},
		{Name: "S11", About: "wall clocks leap and flicker, one and all", play: clocksEverywhere},
		{Name: "S12", About: "a coordinator freezes, is succeeded and wakes; an old generation commits", play: coordinators},
		{Name: "S13", About: "controllers are cut off, frozen and lose their votes while topics come and go", play: controllers},
		{Name: "S14", About: "replicas move while nodes that get them are killed, leaders stop in order, and moves are cancelled", Nodes: 5, play: moveUnderFire},
		{Name: "S15", About: "logs are trimmed, and then compacted, while leaders are killed", play: shortenUnderFire},
		{Name: "S16", About: "consumers read from followers while leaders are killed", play: followerReads},
		{Name: "power-fsync", About: "the power fails everywhere at once, twenty times; topics have durability fsync", Needs: Machines, Configs: durable("fsync"), play: powerFails},
		{Name: "power-replicated", About: "the same with durability replicated, where it may lose what was acknowledged: the report says what was lost", Needs: Machines,
			Configs: durable("replicated"), MayLose: true, play: powerFails},
	}
}

// ScenarioNamed finds a scenario that can be played.
func ScenarioNamed(name string) (Scenario, error) {
	for _, s := range Scenarios() {
		if s.Name == name && s.Missing != "" {
			return s, fmt.Errorf("scenario %s cannot be played: the product does not have %s", name, s.Missing)
		}
		if s.Name == name {
			return s, nil
		}
	}
	return Scenario{}, fmt.Errorf("there is no scenario %q; -list shows them", name)
}

// play plays a scenario and returns how many faults there were.
func (r *Run) play(ctx context.Context, s Scenario) (int, error) {
	before := r.faults
	err := s.play(ctx, r)
	if err != nil && ctx.Err() == nil {
		r.complain(ctx, s.Name, err)
		err = nil
	}
	return r.faults - before, err
}

// under inflicts a fault by name at victims, does something, and heals.
func (r *Run) under(ctx context.Context, kind string, victims []*host.Host, during func() error) error {
	k, err := kindNamed(kind)
	if err != nil {
		return err
	}
	if k.Whole {
		if err := r.awaitWhole(ctx, r.patience); err != nil {
			return err
		}
	}
	r.faults++
	r.note("%s%s", kind, names(victims))
	f := r.strike(kind, kind)
	defer func() { r.over(f) }()
	heal, err := r.inflict(ctx, f, k, victims)
	if err != nil {
		return err
	}
	err = during()
	if e := heal(ctx); err == nil {
		err = e
	}
	return err
}

// hold is something to do under a fault: nothing, for a while.
func (r *Run) hold(ctx context.Context, d time.Duration) func() error {
	return func() error { return r.sleep(ctx, d) }
}

// leader is the host that leads partition 0 of the queue, once there is one.
func (r *Run) leader(ctx context.Context) (*host.Host, error) {
	end := time.Now().Add(r.patience)
	for {
		m, err := r.metadata(ctx)
		if err == nil && len(m.Topics) > 0 && len(m.Topics[0].Partitions) > 0 {
			for _, p := range m.Topics[0].Partitions {
				if h := r.cluster.Host(p.Leader); p.Partition == 0 && h != nil && h.PID() != 0 {
					return h, nil
				}
			}
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("no leader for %s: %w", r.patience, err)
		}
		if err := r.sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// others are the hosts that may run, without one.
func (r *Run) others(h *host.Host) []*host.Host {
	var out []*host.Host
	for _, o := range r.alive() {
		if o != h {
			out = append(out, o)
		}
	}
	return out
}

// awaitAck waits until some record has been acknowledged from now on.
func (r *Run) awaitAck(ctx context.Context) error {
	_, before := r.book.Acked()
	for end := time.Now().Add(r.patience); time.Now().Before(end); {
		if _, n := r.book.Acked(); n > before {
			return nil
		}
		if err := r.sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("nothing was acknowledged for %s", r.patience)
}
