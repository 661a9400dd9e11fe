package check

const (
	chunkBits = 12
	chunkLen  = 1 << chunkBits
)

// list grows without copying what it holds.
type list[T any] struct {
	chunks []*[chunkLen]T
	n      int
}

func (l *list[T]) at(i uint32) *T { return &l.chunks[i>>chunkBits][i&(chunkLen-1)] }

func (l *list[T]) add(v T) uint32 {
	if l.n&(chunkLen-1) == 0 {
		l.chunks = append(l.chunks, new([chunkLen]T))
	}
	i := uint32(l.n)
	l.n++
	*l.at(i) = v
	return i
}

func (l *list[T]) len() uint32 { return uint32(l.n) }
