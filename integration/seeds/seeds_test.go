package seeds

import "testing"

func TestChoose(t *testing.T) {
	a, _ := choose("", "TestA", 7)
	again, _ := choose("", "TestA", 8)
	b, _ := choose("", "TestB", 7)
	if a != again || a == b || a < 0 {
		t.Errorf("by name: %d, %d, and %d for another test", a, again, b)
	}
	if seed, err := choose("random", "TestA", 7); seed != 7 || err != nil {
		t.Errorf("random: %d, %v; want the clock", seed, err)
	}
	if seed, err := choose("12", "TestA", 7); seed != 12 || err != nil {
		t.Errorf("given: %d, %v; want 12", seed, err)
	}
	for _, bad := range []string{"-1", "x", "9223372036854775808"} {
		if seed, err := choose(bad, "TestA", 7); err == nil {
			t.Errorf("%s gave %d; want an error", bad, seed)
		}
	}
}
