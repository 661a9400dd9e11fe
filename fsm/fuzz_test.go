package fsm_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/weirmq/weir/fsm"
)

// FuzzDecodeCommand feeds bytes to the decoder and what it accepts to Apply.
func FuzzDecodeCommand(f *testing.F) {
	for _, c := range slices.Concat(samples(), groupSamples(), nodeSamples()) {
		f.Add(fsm.EncodeCommand(nil, c))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		c, err := fsm.DecodeCommand(p)
		if err != nil {
			return
		}
		encoded := fsm.EncodeCommand(nil, c)
		again, err := fsm.DecodeCommand(encoded)
		if err != nil || !bytes.Equal(fsm.EncodeCommand(nil, again), encoded) {
			t.Fatalf("%x decodes as %#v, encodes as %x, decodes as %#v (%v)", p, c, encoded, again, err)
		}
		applyTo(t, c)
	})
}

// FuzzDecodeEntry does the same with entries.
func FuzzDecodeEntry(f *testing.F) {
	f.Add(fsm.EncodeEntry(nil, slices.Concat(samples(), groupSamples(), nodeSamples())))
	f.Add(fsm.EncodeEntry(nil, nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		cs, err := fsm.DecodeEntry(p)
		if err != nil {
			return
		}
		encoded := fsm.EncodeEntry(nil, cs)
		if again, err := fsm.DecodeEntry(encoded); err != nil || !bytes.Equal(fsm.EncodeEntry(nil, again), encoded) {
			t.Fatalf("%x: entry of %d commands does not survive its encoding: %v", p, len(cs), err)
		}
		applyTo(t, cs...)
	})
}

// applyTo applies commands to an empty Image and to one with rows of every kind.
func applyTo(t *testing.T, cs ...fsm.Command) {
	for _, im := range []*fsm.Image{fsm.NewImage(), groupImage(t)} {
		index := im.Index() + 1
		whole, _ := fsm.ApplyEntry(im, index, cs)
		for _, c := range cs {
			im, _ = fsm.Apply(im, index, c)
		}
		if whole.Hash() != im.Hash() {
			t.Fatalf("an entry of %#v makes another Image than its commands", cs)
		}
		if err := fsm.CheckImage(im); err != nil {
			t.Fatalf("after %#v: %v", cs, err)
		}
	}
}

// FuzzReadSnapshot feeds bytes to the reader, with and without a checksum that
// fits, and applies a command of each kind to what it accepts.
func FuzzReadSnapshot(f *testing.F) {
	var snapshot bytes.Buffer
	if err := fsm.WriteSnapshot(&snapshot, groupImage(f)); err != nil {
		f.Fatal(err)
	}
	f.Add(snapshot.Bytes())
	f.Fuzz(func(t *testing.T, p []byte) {
		if im, err := fsm.ReadSnapshot(bytes.NewReader(p)); err == nil {
			verify(t, im, im)
		}
		im, err := fsm.ReadSnapshotUnchecked(p)
		if err != nil {
			return
		}
		if err := fsm.CheckImage(im); err != nil {
			t.Fatalf("accepted: %v", err)
		}
		for i, c := range slices.Concat(samples(), groupSamples(), nodeSamples()) {
			im, _ = fsm.Apply(im, im.Index()+uint64(i%2), c)
		}
		if err := fsm.CheckImage(im); err != nil {
			t.Fatalf("after the samples: %v", err)
		}
	})
}
