package check

const (
	deliveryBits = 10
	deliveryLen  = 1 << deliveryBits
)

// deliveries counts how often one process got each record of one key: a bit for
// once, a map for more.
type deliveries struct {
	once map[int64]*[deliveryLen / 64]uint64
	more map[int64]int
}

// add counts a delivery and is the number of deliveries so far.
func (d *deliveries) add(offset int64) int {
	if d.once == nil {
		d.once, d.more = map[int64]*[deliveryLen / 64]uint64{}, map[int64]int{}
	}
	p := d.once[offset>>deliveryBits]
	if p == nil {
		p = new([deliveryLen / 64]uint64)
		d.once[offset>>deliveryBits] = p
	}
	word, bit := &p[offset&(deliveryLen-1)/64], uint64(1)<<(offset&63)
	if *word&bit == 0 {
		*word |= bit
		return 1
	}
	n := max(d.more[offset], 1) + 1
	d.more[offset] = n
	return n
}

// consumed moves one (process, record) pair from n-1 deliveries to n.
func (r *Report) consumed(n int) {
	for len(r.Consumed) <= n {
		r.Consumed = append(r.Consumed, 0)
	}
	r.Consumed[n]++
	if n > 1 {
		r.Consumed[n-1]--
	}
}
