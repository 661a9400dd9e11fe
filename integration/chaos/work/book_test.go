package work

import (
	"bytes"
	"testing"
	"time"

	"github.com/weirmq/weir/integration/chaos/history"
)

func TestPayload(t *testing.T) {
	for _, size := range []int{0, payloadHead, payloadHead + 1, 5000} {
		v := history.NewValue(7, uint64(size))
		p := payload(3, v, size)
		if got, err := parsePayload(3, p); err != nil || got != v {
			t.Errorf("size %d: got %v, %v, want %v", size, got, err, v)
		}
		if _, err := parsePayload(4, p); err == nil {
			t.Errorf("size %d: a record of another partition was taken", size)
		}
		if _, err := parsePayload(3, p[:len(p)-1]); err == nil {
			t.Errorf("size %d: a record that was cut was taken", size)
		}
		for at := payloadHead; at < len(p); at += 97 {
			bad := bytes.Clone(p)
			bad[at] ^= 4
			if _, err := parsePayload(3, bad); err == nil {
				t.Errorf("size %d: a record with another byte %d was taken", size, at)
			}
		}
	}
}

func TestBookGivesKeysToIncarnations(t *testing.T) {
	w, err := history.NewWriter(&bytes.Buffer{}, history.Header{})
	if err != nil {
		t.Fatal(err)
	}
	b := NewBook(w, time.Now())
	a, c := b.Topic("a", 3, 1), b.Topic("a", 2, 2)
	if a.Key(2) >= c.Key(0) || a.Key(0) == 0 {
		t.Errorf("keys %d to %d and from %d", a.Key(0), a.Key(2), c.Key(0))
	}
	b.acknowledged("x", a.Key(1), 10)
	b.acknowledged("x", a.Key(1), 4)
	if got := b.end(a.Key(1)); got != 11 {
		t.Errorf("end %d, want 11", got)
	}
	b.Problem("again")
	b.Problem("again")
	if got := b.Problems(); len(got) != 1 || got[0] != "again (2 times)" {
		t.Errorf("problems %q", got)
	}
}
