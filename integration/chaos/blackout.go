package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/weirmq/weir/integration/chaos/host"
)

// blackouts is how often the power fails in a scenario of that.
const blackouts = 20

// powerFails takes the power from all nodes at the same moment, again and again, at
// moments that the seed draws, while everybody works.
func powerFails(ctx context.Context, r *Run) error {
	for i := range blackouts {
		if err := r.awaitAck(ctx); err != nil {
			return err
		}
		if err := r.sleep(ctx, time.Second+time.Duration(r.rnd.Int64N(int64(3*time.Second)))); err != nil {
			return err
		}
		r.faults++
		r.note("power fails everywhere (%d of %d)", i+1, blackouts)
		f := r.strike("blackout", "all nodes at once")
		r.take(f, r.alive())
		err := host.Blackout(r.alive())
		if err == nil {
			err = restart(r.cluster.Hosts)
		}
		if err == nil {
			began := time.Now()
			err = r.awaitWhole(ctx, r.patience)
			r.note("whole %s after the power came back", time.Since(began).Round(10*time.Millisecond))
		}
		r.over(f)
		if err != nil {
			return fmt.Errorf("the power failed for the %dth time: %w", i+1, err)
		}
	}
	return nil
}

// durable is the configuration of topics with that durability and two replicas in sync at least.
func durable(durability string) map[string]*string {
	two := "2"
	return map[string]*string{"weir.durability": &durability, "min.insync.replicas": &two}
}
