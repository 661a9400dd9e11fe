package batch

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func recordsOf(t interface{ Fatal(...any) }, b Batch) []Record {
	var out []Record
	for r, err := range b.Records(b.Payload()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// TestThin takes random records out of random batches, with and without a horizon, and
// compares what is left with what was there.
func TestThin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Int64Range(0, 1<<40).Draw(t, "first")
		build := NewBuilder(first)
		n := rapid.IntRange(1, 8).Draw(t, "records")
		stay := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "stay")
		for i := range n {
			value := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "value")
			if rapid.Bool().Draw(t, "deletes") {
				value = nil
			}
			build.Add(first+rapid.Int64Range(-1<<20, 1<<33).Draw(t, "time"), fmt.Appendf(nil, "%d", i), value, Header{Key: "a", Value: value})
		}
		build.Producer(7, 3, 11)
		b := build.Bytes()
		b.Assign(1000, 5)
		was := recordsOf(t, b)
		section, left, err := b.Thin(nil, b.Payload(), func(o Offset, key []byte, deletes bool) bool {
			i := int(o - 1000)
			if string(key) != fmt.Sprint(i) || deletes != (was[i].Value == nil) {
				t.Fatalf("record %d has key %q and deletes %v", i, key, deletes)
			}
			return stay[i]
		})
		if err != nil {
			t.Fatal(err)
		}
		horizon := NoHorizon
		if rapid.Bool().Draw(t, "horizon") {
			horizon = rapid.Int64Range(0, 1<<42).Draw(t, "to")
			if section, err = b.Retime(nil, section, horizon); err != nil {
				t.Fatal(err)
			}
		}
		got := Batch(b.AppendRebuilt([]byte("xyz"), section, left, horizon)[3:])
		if err := got.CheckCRC(); err != nil {
			t.Fatal(err)
		}
		if got.Base() != b.Base() || got.Last() != b.Last() || got.Epoch() != 5 || got.ProducerID() != 7 || got.FirstSequence() != 11 || got.DeleteHorizon() != horizon {
			t.Fatalf("header %x of %x", got[:HeaderSize], b[:HeaderSize])
		}
		newest, deletes := NoTimestamp, int32(0)
		rest := recordsOf(t, got)
		for i, r := range was {
			if !stay[i] {
				continue
			}
			newest = max(newest, r.Timestamp)
			if r.Value == nil {
				deletes++
			}
			g := rest[0]
			rest = rest[1:]
			if g.Offset != r.Offset || g.Timestamp != r.Timestamp || !bytes.Equal(g.Key, r.Key) || !bytes.Equal(g.Value, r.Value) || (g.Value == nil) != (r.Value == nil) || !bytes.Equal(g.headers, r.headers) {
				t.Fatalf("record %+v, want %+v", g, r)
			}
		}
		if len(rest) > 0 || left.Newest != newest || left.Deletes != deletes || got.NewestTimestamp() != newest {
			t.Fatalf("left %+v and %d more, newest %d", left, len(rest), got.NewestTimestamp())
		}
	})
}

// TestFiller makes a filler and cuts its front off.
func TestFiller(t *testing.T) {
	b := Batch(AppendFiller(nil, 100, 249, 3))
	check := func(base Offset) {
		t.Helper()
		next, rest, err := Next(b)
		if err != nil || len(rest) > 0 || next.CheckCRC() != nil {
			t.Fatalf("not a batch: %v, %d bytes more", err, len(rest))
		}
		if !b.Filler() || b.Base() != base || b.End() != 250 || b.Epoch() != 3 || b.HasProducer() || b.Control() || b.Transactional() ||
			b.NewestTimestamp() != NoTimestamp || b.MaxTimestamp() != NoTimestamp || b.LastSequence() != NoSequence || b.Codec() != None || b.DeleteHorizon() != NoHorizon {
			t.Fatalf("filler %x", []byte(b))
		}
	}
	check(100)
	b.TrimFront(180)
	check(180)
}

// TestEmptied keeps what a producer is remembered by.
func TestEmptied(t *testing.T) {
	build := NewBuilder(5)
	build.Add(9, []byte("k"), nil)
	build.Add(7, []byte("l"), nil)
	build.Producer(1, 2, 3)
	b := build.Bytes()
	b.Assign(40, 6)
	got := Batch(b.AppendEmptied(nil))
	if got.CheckCRC() != nil || got.Size() != HeaderSize || got.Count() != 0 || got.Base() != 40 || got.Last() != 41 || got.Filler() ||
		got.ProducerID() != 1 || got.ProducerEpoch() != 2 || got.FirstSequence() != 3 || got.LastSequence() != 4 || got.MaxTimestamp() != 9 || got.NewestTimestamp() != NoTimestamp {
		t.Fatalf("emptied %x of %x", []byte(got), []byte(b))
	}
}

// TestHorizonRefused refuses a batch of a client that claims to have been cleaned.
func TestHorizonRefused(t *testing.T) {
	build := NewBuilder(5)
	build.Add(9, []byte("k"), nil)
	b := build.Bytes()
	b[atAttributes+1] |= bitDeleteHorizon
	b.setCRC()
	_, err := Validate(b, Rules{MaxBatchBytes: 1 << 20, MaxSegmentBytes: 1 << 20, Now: 100, BeforeMax: 1000, AfterMax: 1000})
	if e, ok := err.(*InvalidError); !ok || e.Reason != InvalidRecord { //nolint:errorlint // as it is returned
		t.Fatalf("got %v", err)
	}
}
