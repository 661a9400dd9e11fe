package broker

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/weirmq/weir/integration/allocs"
	"github.com/weirmq/weir/wire/batch"
)

// appendAllocsMax is the budget of one append and its wait, whatever the batch's size.
const appendAllocsMax = 4

// appender appends one batch again and again and waits for it. Two followers
// report it at once.
func appender(s *stand, size int) func() {
	s.host(1, 2, 3)
	s.follows(2, 0)
	s.follows(3, 0)
	b := testBatch(string(bytes.Repeat([]byte("x"), size)))
	epoch := s.state().LeaderEpoch
	ctx := s.Context()
	end := batch.Offset(0)
	return func() {
		b.Assign(0, batch.NoEpoch)
		tk, err := s.p.Append(b, -1)
		if err != nil {
			s.Fatal(err)
		}
		end++
		for id, f := range s.feeders {
			clear(f.news)
			s.p.progressed(s.member(id), epoch, position(end))
		}
		if err := tk.Wait(ctx); err != nil {
			s.Fatal(err)
		}
	}
}

func TestAppendAllocatesLittle(t *testing.T) {
	for _, size := range []int{100, 100_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			run := appender(newStand(t), size)
			run()
			if got := allocs.Least(run); got > appendAllocsMax {
				t.Errorf("an append of %d bytes makes %.1f allocations, want at most %d", size, got, appendAllocsMax)
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			run := appender(newStand(b), size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}
