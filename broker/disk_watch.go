package broker

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/storage/vfs"
)

const (
	// watchTicks is how many looks make the limit of a call: how late a hang may be seen.
	watchTicks = 8
	// calmTicks is how many looks in a row must find no call waiting before the disk is
	// trusted again: one that hangs again and again would hold everybody up each time.
	calmTicks = 4
)

// suspendable is what diskWatch needs of the controller's session.
type suspendable interface {
	Suspend()
	Resume()
}

// diskWatch looks whether calls of the disk return. A disk that hangs gives no error: the
// locks of the partitions whose calls wait are held, nothing is acknowledged, and
// heartbeats would go on. So when a call has not returned for the limit, this node takes
// itself out: its session is suspended, clients are sent away, and the controller gives
// what it led to others. It comes back as after any silence when the disk answers again.
//
// It has one goroutine, from start to close, which calls nothing that waits for a disk.
type diskWatch struct {
	calls   *vfs.Watch
	limit   time.Duration
	session suspendable
	// hung is read by everybody who would wait for a lock that a call may hold.
	hung    *atomic.Bool
	cutOff  func()
	metrics *diskMetrics
	log     hclog.Logger

	calm    int                         // looks in a row that found no call waiting
	longest atomic.Pointer[vfs.Waiting] // as of the last look, while the disk hangs
	cancel  context.CancelFunc
	done    chan struct{}
}

// start begins to look. It is called once at most, and close after it.
func (d *diskWatch) start() {
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel, d.done = cancel, make(chan struct{})
	go d.run(ctx)
}

// close ends the goroutine, if there is one.
func (d *diskWatch) close() {
	if d.cancel != nil {
		d.cancel()
		<-d.done
	}
}

func (d *diskWatch) run(ctx context.Context) {
	defer close(d.done)
	t := time.NewTicker(d.limit / watchTicks)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		d.look()
	}
}

// look counts a tick and acts on what it finds.
func (d *diskWatch) look() {
	w := d.calls.Tick()
	if w.Ticks > 0 {
		d.calm = 0
	} else {
		d.calm++
	}
	switch hung := d.hung.Load(); {
	case !hung && w.Ticks >= watchTicks:
		d.leave(w)
	case hung && d.calm >= calmTicks:
		d.comeBack()
	case hung && w.Ticks > 0:
		d.longest.Store(&w)
	}
}

// leave takes this node out. What comes in from now on is refused before the connections
// are cut, since those who dial again must not wait for the same locks.
func (d *diskWatch) leave(w vfs.Waiting) {
	d.longest.Store(&w)
	d.session.Suspend()
	d.hung.Store(true)
	d.cutOff()
	d.metrics.hung.Set(1)
	d.metrics.hangs.Inc()
	d.log.Error("the disk hangs: this node gives up what it leads until the disk answers", "call", string(w.Op), "file", w.Name, "waited_longer_than", d.limit.String())
}

func (d *diskWatch) comeBack() {
	d.hung.Store(false)
	d.session.Resume()
	d.metrics.hung.Set(0)
	d.log.Warn("the disk answers again: this node comes back")
}

// check is a health check.
func (d *diskWatch) check() error {
	if w := d.longest.Load(); w != nil && d.hung.Load() {
		return fmt.Errorf("the disk hangs: %s of %s has not returned for about %s", w.Op, w.Name, time.Duration(w.Ticks)*(d.limit/watchTicks))
	}
	return nil
}
