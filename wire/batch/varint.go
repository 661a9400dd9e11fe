package batch

// The varint readers take an index and return the next one, or -1 once the bytes
// ended or the number was too long. They accept -1 and hand it on, so that a row
// of reads needs one check at its end.

// varint reads a zigzag number of at most 32 bits.
func varint(p []byte, i int) (int32, int) {
	if uint(i) < uint(len(p)) && p[i] < 0x80 {
		u := int32(p[i])
		return u>>1 ^ -(u & 1), i + 1
	}
	return varintSlow(p, i)
}

func varintSlow(p []byte, i int) (int32, int) {
	if i >= 0 && i < len(p)-1 && p[i+1] < 0x80 { // two bytes: the length of most records
		u := int32(p[i]&0x7f) | int32(p[i+1])<<7
		return u>>1 ^ -(u & 1), i + 2
	}
	u, next := uvarint(p, i, 5)
	if u>>32 != 0 {
		return 0, -1
	}
	return int32(uint32(u)>>1) ^ -int32(u&1), next
}

// varlong reads a zigzag number of at most 64 bits.
func varlong(p []byte, i int) (int64, int) {
	if uint(i) < uint(len(p)) && p[i] < 0x80 {
		u := int64(p[i])
		return u>>1 ^ -(u & 1), i + 1
	}
	u, next := uvarint(p, i, 10)
	return int64(u>>1) ^ -int64(u&1), next
}

// uvarint reads at most most bytes of seven bits each, the lowest first.
func uvarint(p []byte, i, most int) (uint64, int) {
	if i < 0 {
		return 0, -1
	}
	var u uint64
	for n := 0; n < most && i < len(p); n++ {
		c := p[i]
		i++
		if n == 9 && c > 1 {
			return 0, -1
		}
		u |= uint64(c&0x7f) << (7 * n)
		if c < 0x80 {
			return u, i
		}
	}
	return 0, -1
}

func appendVarint(dst []byte, v int32) []byte { return appendVarlong(dst, int64(v)) }

func appendVarlong(dst []byte, v int64) []byte {
	u := uint64(v<<1) ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

func varlongSize(v int64) int {
	n := 1
	for u := uint64(v<<1) ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
