package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
	"github.com/weirmq/weir/integration/chaos/work"
)

const (
	// beatEvery is how often the heart beats; with a disk at rest a beat takes milliseconds.
	beatEvery = 100 * time.Millisecond
	// beatLate is the time between two beats from which the machine is starved: of
	// processors, or of its disk.
	beatLate = time.Second
)

// heartbeat finds out whether the machine lets the run have its share: it wakes ten
// times a second and has a byte written to the disk that the nodes' disks are on. When
// that takes long, what takes long in the cluster is not the cluster's doing, and the
// history says so by a window of a fault that nobody has inflicted.
type heartbeat struct {
	stop context.CancelFunc
	done chan struct{}
}

// beat starts the heart; it stops with end.
func beat(book *work.Book, dir string) (*heartbeat, error) {
	f, err := os.Create(filepath.Join(dir, "heartbeat"))
	if err != nil {
		return nil, fmt.Errorf("start the heartbeat: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	h := &heartbeat{stop: stop, done: make(chan struct{})}
	go func() { // ends with end
		defer close(h.done)
		defer f.Close()
		pulse := pulse{book: book, last: book.Now()}
		for tick := time.NewTicker(beatEvery); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			_, err := f.WriteAt([]byte{1}, 0)
			if err == nil {
				err = f.Sync()
			}
			if err != nil {
				book.Problem("the heartbeat: %v", err)
				return
			}
			pulse.beat(book.Now())
		}
	}()
	return h, nil
}

// end stops the heart and waits for it.
func (h *heartbeat) end() {
	h.stop()
	<-h.done
}

// pulse judges the times between beats.
type pulse struct {
	book *work.Book
	last int64
}

func (p *pulse) beat(now int64) {
	if time.Duration(now-p.last) > beatLate {
		p.book.Window(history.Window{Start: p.last, End: now, Kind: starved, Target: "this machine"})
	}
	p.last = now
}

// starved is the kind of a window in which the machine was too busy to be judged.
const starved = "starved"
