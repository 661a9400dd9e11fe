package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirmq/weir/integration/chaos/host"
)

// UnknownKindError is the name of a fault that there is not.
type UnknownKindError struct{ Name string }

func (e *UnknownKindError) Error() string {
	return fmt.Sprintf("there is no fault %q; -list shows them", e.Name)
}

func kindNamed(name string) (Kind, error) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, nil
		}
	}
	return Kind{}, &UnknownKindError{Name: name}
}

// each does something at every victim, whatever happens at the others.
func each(victims []*host.Host, do func(*host.Host) error) error {
	var failed error
	for _, h := range victims {
		failed = errors.Join(failed, do(h))
	}
	return failed
}

// restart starts those that do not run and may.
func restart(victims []*host.Host) error {
	return each(victims, func(h *host.Host) error {
		if h.PID() != 0 || h.Lost() {
			return nil
		}
		return h.Start()
	})
}

func restarting(victims []*host.Host) func(context.Context) error {
	return func(context.Context) error { return restart(victims) }
}

func kill(_ context.Context, _ *Run, victims []*host.Host) (func(context.Context) error, error) {
	return restarting(victims), each(victims, (*host.Host).Kill)
}

func killBack(_ context.Context, _ *Run, victims []*host.Host) (func(context.Context) error, error) {
	return restarting(victims), errors.Join(each(victims, (*host.Host).Kill), restart(victims))
}

func term(_ context.Context, _ *Run, victims []*host.Host) (func(context.Context) error, error) {
	return restarting(victims), each(victims, (*host.Host).Stop)
}

func pause(_ context.Context, _ *Run, victims []*host.Host) (func(context.Context) error, error) {
	heal := func(context.Context) error { return each(victims, (*host.Host).Resume) }
	return heal, each(victims, (*host.Host).Pause)
}

// cutting cuts the links that choose names for each victim.
func cutting(r *Run, victims []*host.Host, choose func(c host.Cuts, victim, other int)) (func(context.Context) error, error) {
	cuts := host.Cuts{}
	for _, v := range victims {
		for other := range len(r.cluster.Hosts) + 2 { // the clients, the hosts, and the spare one
			if other != v.ID {
				choose(cuts, v.ID, other)
			}
		}
	}
	return func(context.Context) error { return r.cluster.Heal() }, r.cluster.Cut(cuts)
}

func cutOff(_ context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	return cutting(r, victims, func(c host.Cuts, v, o int) { c.Both(v, o, host.Lost) })
}

func cutPeers(_ context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	return fromPeers(r, victims, func(c host.Cuts, v, o int) { c.Both(v, o, host.Lost) })
}

// refusePeers makes living nodes look like dead ones: whoever dials them is refused.
func refusePeers(_ context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	return fromPeers(r, victims, func(c host.Cuts, v, o int) { c.Both(v, o, host.Refused) })
}

// fromPeers is cutting that leaves the links of clients alone.
func fromPeers(r *Run, victims []*host.Host, choose func(c host.Cuts, victim, other int)) (func(context.Context) error, error) {
	return cutting(r, victims, func(c host.Cuts, v, o int) {
		if o != host.Clients {
			choose(c, v, o)
		}
	})
}

func cutIn(_ context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	return fromPeers(r, victims, func(c host.Cuts, v, o int) { c[host.Link{From: o, To: v}] = host.Lost })
}

func cutOut(_ context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	return fromPeers(r, victims, func(c host.Cuts, v, o int) { c[host.Link{From: v, To: o}] = host.Lost })
}

// cutPair cuts each victim from the node after it.
func cutPair(_ context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	n := len(r.cluster.Hosts)
	return cutting(r, victims, func(c host.Cuts, v, o int) {
		if o == v%n+1 {
			c.Both(v, o, host.Lost)
		}
	})
}

func cutClients(_ context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	return cutting(r, victims, func(c host.Cuts, v, o int) {
		if o == host.Clients {
			c.Both(v, o, host.Lost)
		}
	})
}

const slowBytes = 40 << 10

func slow(_ context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	set := func(n int) error {
		return each(victims, func(h *host.Host) error { return r.cluster.Network().Slow(h.ID, n) })
	}
	return func(context.Context) error { return set(0) }, set(slowBytes)
}

const delayTime = 300 * time.Millisecond

func delay(_ context.Context, _ *Run, victims []*host.Host) (func(context.Context) error, error) {
	set := func(d time.Duration) error {
		return each(victims, func(h *host.Host) error { h.Front.Delay(d); return nil })
	}
	return func(context.Context) error { return set(0) }, set(delayTime)
}

func replyLoss(_ context.Context, _ *Run, victims []*host.Host) (func(context.Context) error, error) {
	set := func(on bool) error {
		return each(victims, func(h *host.Host) error { h.Front.Swallow(on); return nil })
	}
	return func(context.Context) error { return set(false) }, set(true)
}

// clocks takes hold of the victims' clocks; one that does not run has none.
func clocks(victims []*host.Host) ([]*host.Clock, error) {
	var out []*host.Clock
	for _, h := range victims {
		if h.PID() == 0 {
			continue
		}
		c, err := h.Clock()
		if err != nil {
			return out, fmt.Errorf("take hold of the clock of node %d: %w", h.ID, err)
		}
		out = append(out, c)
	}
	return out, nil
}

func stepAll(clocks []*host.Clock, d time.Duration) error {
	var failed error
	for _, c := range clocks {
		failed = errors.Join(failed, c.Step(d))
	}
	return failed
}

func clockStep(_ context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	held, err := clocks(victims)
	d := time.Hour
	if r.rnd.IntN(2) == 0 {
		d = -d
	}
	return func(context.Context) error { return stepAll(held, 0) }, errors.Join(err, stepAll(held, d))
}

const strobeEvery = 200 * time.Millisecond

func clockStrobe(ctx context.Context, r *Run, victims []*host.Host) (func(context.Context) error, error) {
	held, err := clocks(victims)
	if err != nil {
		return nil, err
	}
	strobe, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	d := time.Duration(r.rnd.Int64N(int64(20 * time.Minute)))
	go func() { // ends with strobe, and heal waits for it
		tick := time.NewTicker(strobeEvery)
		defer tick.Stop()
		for {
			d = -d
			if err := stepAll(held, d); err != nil {
				done <- err
				return
			}
			select {
			case <-tick.C:
			case <-strobe.Done():
				done <- stepAll(held, 0)
				return
			}
		}
	}()
	return func(context.Context) error { stop(); return <-done }, nil
}

// roll restarts every node in turn, waiting for the replicas in between.
func roll(ctx context.Context, r *Run, _ []*host.Host) (func(context.Context) error, error) {
	heal := restarting(r.cluster.Hosts)
	for _, h := range r.alive() {
		if err := r.cycle(ctx, h); err != nil {
			return heal, err
		}
	}
	return heal, nil
}

// cycle restarts a node in order and waits until all replicas are in sync.
func (r *Run) cycle(ctx context.Context, h *host.Host) error {
	if err := h.Stop(); err != nil {
		return err
	}
	if err := h.Start(); err != nil {
		return err
	}
	began := time.Now()
	if err := r.awaitWhole(ctx, r.patience); err != nil {
		return err
	}
	r.note("node %d: all replicas in sync %s after its start", h.ID, time.Since(began).Round(10*time.Millisecond))
	return nil
}
