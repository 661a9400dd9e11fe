package broker

import "sync"

// bufferSlack is the room for the header and the names around a batch of a
// round size, so that a Produce of one 1 MiB batch fits the 1 MiB class.
const bufferSlack = 64 << 10

// bufferSizes are the sizes of pooled buffers. Larger frames are rare and their
// buffers are left to the garbage collector.
var bufferSizes = [...]int{
	4 << 10, 16 << 10, 64 << 10,
	256<<10 + bufferSlack, 1<<20 + bufferSlack, 4<<20 + bufferSlack, 16<<20 + bufferSlack,
}

const (
	bufferFirst    = 64 << 10 // what a frame gets before any more than its length has come
	bufferGrowth   = 4        // above the pooled sizes
	bufferUnpooled = -1
)

// buffers keeps the request buffers that are not in use, by size. The garbage
// collector empties it when they stay unused.
type buffers struct {
	pools [len(bufferSizes)]sync.Pool
}

// buffer is one piece of memory with one owner at a time.
type buffer struct {
	bytes []byte
	class int
}

// bufferStep is the size of the buffer to take for a frame of want bytes when
// one of have bytes is full (0: none yet).
func bufferStep(have, want int) int {
	if have == 0 {
		return bufferFit(min(want, bufferFirst))
	}
	for _, size := range bufferSizes {
		if size > have {
			return min(size, bufferFit(want))
		}
	}
	return min(have*bufferGrowth, want)
}

// bufferFit is the smallest size that holds n bytes.
func bufferFit(n int) int {
	for _, size := range bufferSizes {
		if size >= n {
			return size
		}
	}
	return n
}

// get returns a buffer of exactly size bytes with arbitrary content; size comes from bufferStep.
func (p *buffers) get(size int) *buffer {
	for class, pooled := range bufferSizes {
		if pooled != size {
			continue
		}
		if b, ok := p.pools[class].Get().(*buffer); ok {
			return b
		}
		return &buffer{bytes: make([]byte, size), class: class}
	}
	return &buffer{bytes: make([]byte, size), class: bufferUnpooled}
}

// put takes b back; the caller must not touch it again.
func (p *buffers) put(b *buffer) {
	if b == nil || b.class == bufferUnpooled {
		return
	}
	p.pools[b.class].Put(b)
}
