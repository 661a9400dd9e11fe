package fsm

// The journal lets Diff look only at what changed. Radix trees share their
// unchanged parts, but the library does not let a reader compare them; so every
// Image carries the keys that its latest commands touched.
//
// Invariants: a change is never modified once it is in a journal; a change's
// prev chain stays within its generation, so that old ones can be collected; a
// journal holds its present generation and the one before, hence between one and
// two times generationWeight of keys.

// generationWeight is how many keys (and changes) a generation holds at most,
// unless one command alone touches more. At 24 to 40 bytes each it bounds the
// journal to a few MB.
const generationWeight = 1 << 15

// blockChange names rows of a block: bit i of rows is the i-th.
type blockChange struct {
	key  blockKey
	rows uint64
}

// change is what one command touched.
type change struct {
	prev   *change // the one before, in the same generation
	blocks []blockChange
	topics []TopicID // of topics and tombstones
}

func (c *change) addBlock(key blockKey, rows uint64) {
	c.blocks = append(c.blocks, blockChange{key, rows})
}

// journal is a value: each Image has its own.
type journal struct {
	head   *change // latest change of the present generation
	before *change // latest change of the previous generation
	weight int     // of the present generation
}

// newJournal begins a history that no other Image shares.
func newJournal() journal { return journal{before: &change{}} }

// latest identifies the Image's place in history.
func (j journal) latest() *change {
	if j.head != nil {
		return j.head
	}
	return j.before
}

// with is j after c, which is copied; a command that touched nothing leaves no trace.
func (j journal) with(c *change) journal {
	weight := len(c.blocks) + len(c.topics)
	if weight == 0 {
		return j
	}
	if j.head != nil && j.weight+weight+1 > generationWeight {
		j = journal{before: j.head}
	}
	return journal{
		head:   &change{prev: j.head, blocks: c.blocks, topics: c.topics},
		before: j.before,
		weight: j.weight + weight + 1,
	}
}

// since returns what changed after the Image with journal old, and whether that
// is known: j must continue old, and old must not be too long ago.
func (j journal) since(old journal) ([]blockChange, []TopicID, bool) {
	var blocks []blockChange
	var topics []TopicID
	stop := old.latest()
	for _, c := range []*change{j.head, j.before} {
		for ; c != nil; c = c.prev {
			if c == stop {
				blocks, topics = sortChanges(blocks, topics)
				return blocks, topics, true
			}
			blocks = append(blocks, c.blocks...)
			topics = append(topics, c.topics...)
		}
	}
	return nil, nil, false
}
