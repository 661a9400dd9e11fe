package broker

import "sync"

// responseKeep is the largest buffer that is kept for the next response.
const responseKeep = 256 << 10

// responsePool keeps the buffers that responses are encoded into.
type responsePool struct{ pool sync.Pool }

// response is the memory of one encoded response; its owner may let bytes grow.
type response struct{ bytes []byte }

func (p *responsePool) get() *response {
	if r, ok := p.pool.Get().(*response); ok {
		return r
	}
	return &response{bytes: make([]byte, 0, 512)}
}

func (p *responsePool) put(r *response) {
	if cap(r.bytes) <= responseKeep {
		p.pool.Put(r)
	}
}
