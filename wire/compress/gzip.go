package compress

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// guessRatio is by how much records usually shrink: it sizes a first buffer only.
const guessRatio = 4

type gunzipper struct {
	in bytes.Reader
	z  gzip.Reader
}

var gunzippers = sync.Pool{New: func() any { return new(gunzipper) }}

func gunzip(dst, src []byte, limit int) ([]byte, error) {
	g := gunzippers.Get().(*gunzipper)
	defer func() {
		g.in.Reset(nil)
		gunzippers.Put(g)
	}()
	g.in.Reset(src)
	if err := g.z.Reset(&g.in); err != nil {
		return nil, err
	}
	return drain(dst, &g.z, guessRatio*len(src), limit)
}

// gzippers holds writers of the default level; the other levels are for tools.
var gzippers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

func gzipped(dst, src []byte, level int) ([]byte, error) {
	if level == 0 {
		w := gzippers.Get().(*gzip.Writer)
		defer gzippers.Put(w)
		return gzipInto(w, dst, src)
	}
	w, err := gzip.NewWriterLevel(nil, level)
	if err != nil {
		return nil, fmt.Errorf("compress with gzip at level %d: %w", level, err)
	}
	return gzipInto(w, dst, src)
}

func gzipInto(w *gzip.Writer, dst, src []byte) ([]byte, error) {
	out := sink{p: dst}
	w.Reset(&out)
	defer w.Reset(nil)
	if _, err := w.Write(src); err != nil {
		return nil, fmt.Errorf("compress with gzip: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress with gzip: %w", err)
	}
	return out.p, nil
}
