package fsm

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirmq/weir/integration/seeds"
)

// TestBlockTreeVersions changes versions of versions at random: each holds what was put into
// it, in order, whatever became of those it was made from and of those made from it.
func TestBlockTreeVersions(t *testing.T) {
	rng := rand.New(rand.NewPCG(uint64(seeds.For(t)), 0))
	type version struct {
		tree *blockTree
		want map[blockKey]*block
	}
	key := func() blockKey {
		return keyOf(TopicPartition{Topic: TopicID{byte(rng.IntN(20)), 15: byte(rng.IntN(4))}, Partition: int32(rng.IntN(3)) * blockSize})
	}
	versions := []version{{newBlockTree(), nil}}
	for range 400 {
		from := versions[rng.IntN(len(versions))]
		next := version{from.tree.version(), maps.Clone(from.want)}
		if next.want == nil {
			next.want = map[blockKey]*block{}
		}
		for range rng.IntN(40) {
			k := key()
			if rng.IntN(3) == 0 {
				next.tree.remove(k)
				delete(next.want, k)
				continue
			}
			b := &block{key: k}
			next.tree.put(b)
			next.want[k] = b
		}
		versions = append(versions, next)
	}
	compare := func(a, b *block) int { return slices.Compare(a.key[:], b.key[:]) }
	for i, v := range versions {
		want := slices.SortedFunc(maps.Values(v.want), compare)
		if got := slices.Collect(v.tree.all()); !slices.Equal(got, want) {
			t.Fatalf("version %d holds %d blocks, or others than the %d that were put there", i, len(got), len(want))
		}
		k := key()
		if b, ok := v.tree.get(k); ok != (v.want[k] != nil) || b != v.want[k] {
			t.Fatalf("version %d: %x is %v, %v", i, k, b, ok)
		}
		want = slices.DeleteFunc(want, func(b *block) bool { return b.key.topic() != k.topic() })
		if got := slices.Collect(v.tree.of(k.topic())); !slices.Equal(got, want) {
			t.Fatalf("version %d: %d blocks of topic %x, want %d", i, len(got), k.topic(), len(want))
		}
	}
}
