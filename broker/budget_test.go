package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/integration/seeds"
)

// grows starts l.grow and returns its outcome as a channel.
func grows(ctx context.Context, l *lease, n int64) <-chan error {
	done := make(chan error, 1)
	go func() { done <- l.grow(ctx, n) }()
	return done
}

// awaitWaiters waits until n leases stand in line.
func awaitWaiters(t *testing.T, b *budget, n int) {
	t.Helper()
	eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.waiters) == n
	})
}

// eventually waits for a condition that other goroutines bring about.
func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the condition did not come true")
		}
	}
}

func TestBudgetLetsOneOverdraw(t *testing.T) {
	b := newBudget(100)
	first, second := &lease{b: b}, &lease{b: b}
	if err := first.grow(t.Context(), 60); err != nil {
		t.Fatal(err)
	}
	if err := second.grow(t.Context(), 60); err != nil { // overdraws by 20
		t.Fatal(err)
	}
	if got := b.unused(); got != -20 {
		t.Fatalf("unused = %d, want -20", got)
	}
	waits := grows(t.Context(), first, 10)
	awaitWaiters(t, b, 1)
	if err := second.grow(t.Context(), 60); err != nil { // may go on overdrawing
		t.Fatal(err)
	}
	second.filled()
	awaitWaiters(t, b, 1) // the debt is not paid yet
	second.release()
	if err := <-waits; err != nil {
		t.Fatal(err)
	}
	first.release()
	if got := b.unused(); got != 100 {
		t.Fatalf("unused = %d after all was released, want 100", got)
	}
}

func TestBudgetServesInOrder(t *testing.T) {
	b := newBudget(100)
	all := &lease{b: b}
	if err := all.grow(t.Context(), 101); err != nil {
		t.Fatal(err)
	}
	large, small := &lease{b: b}, &lease{b: b}
	largeDone := grows(t.Context(), large, 90)
	awaitWaiters(t, b, 1)
	smallDone := grows(t.Context(), small, 1)
	awaitWaiters(t, b, 2)
	all.release()
	if err := <-largeDone; err != nil {
		t.Fatal(err)
	}
	if err := <-smallDone; err != nil {
		t.Fatal(err)
	}
	large.release()
	small.release()
}

func TestBudgetWaitEndsWithContext(t *testing.T) {
	b := newBudget(10)
	all := &lease{b: b}
	if err := all.grow(t.Context(), 11); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &lease{b: b}
	done := grows(ctx, l, 5)
	awaitWaiters(t, b, 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("grow = %v, want context.Canceled", err)
	}
	l.release()
	all.release()
	if got := b.unused(); got != 10 {
		t.Fatalf("unused = %d, want 10", got)
	}
}

// Many leases that each grow in steps, far beyond the budget together, all get
// through, and the budget is whole again afterwards.
func TestBudgetCrowd(t *testing.T) {
	seed := uint64(seeds.For(t))
	const size, crowd, most = 1000, 64, 400
	b := newBudget(size)
	var wg sync.WaitGroup
	for i := range crowd {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for range 50 {
				l := &lease{b: b}
				for range 1 + rnd.IntN(5) {
					if err := l.grow(t.Context(), rnd.Int64N(most)); err != nil {
						t.Error(err)
					}
					if free := b.unused(); free < -5*most {
						t.Errorf("overdrawn by %d", -free)
					}
				}
				l.filled()
				l.release()
			}
		})
	}
	wg.Wait()
	if got := b.unused(); got != size {
		t.Fatalf("unused = %d, want %d", got, size)
	}
}
