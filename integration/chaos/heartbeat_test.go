package chaos

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
	"github.com/weirmq/weir/integration/chaos/work"
)

func testBook(t *testing.T) *work.Book {
	t.Helper()
	w, err := history.NewWriter(&bytes.Buffer{}, history.Header{})
	if err != nil {
		t.Fatal(err)
	}
	return work.NewBook(w, time.Now())
}

// TestPulse checks that late beats, and only those, become windows that excuse a silence.
func TestPulse(t *testing.T) {
	var text bytes.Buffer
	w, err := history.NewWriter(&text, history.Header{})
	if err != nil {
		t.Fatal(err)
	}
	p := pulse{book: work.NewBook(w, time.Now())}
	late := int64(beatLate)
	for _, now := range []int64{late, late + 5, 3*late + 5, 4 * late} {
		p.beat(now)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := history.NewReader(&text)
	if err != nil {
		t.Fatal(err)
	}
	var got []history.Window
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Window != nil {
			got = append(got, *e.Window)
		}
	}
	if len(got) != 1 || got[0].Start != late+5 || got[0].End != 3*late+5 || got[0].Survivable {
		t.Errorf("got %+v, want one window of two seconds that excuses", got)
	}
}

func TestHeartbeatEnds(t *testing.T) {
	h, err := beat(testBook(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h.end()
}
