package chaos

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

func TestDrawRepeats(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	a, b := Draw(seed, 10*time.Minute, Kinds()), Draw(seed, 10*time.Minute, Kinds())
	if !reflect.DeepEqual(a, b) {
		t.Error("the same seed gives two plans")
	}
	if reflect.DeepEqual(a, Draw(seed+1, 10*time.Minute, Kinds())) {
		t.Error("two seeds give the same plan")
	}
}

// TestDrawHoldsEveryKind checks length, variety, and that what cannot be undone comes last.
func TestDrawHoldsEveryKind(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	kinds := Kinds()
	plan := Draw(seed, 15*time.Minute, kinds)
	var length time.Duration
	seen := map[string]int{}
	for i, s := range plan {
		length += s.After + s.Hold
		for _, a := range s.Faults {
			seen[a.Kind]++
			k, err := kindNamed(a.Kind)
			if err != nil {
				t.Fatal(err)
			}
			if k.Final && i != len(plan)-1 {
				t.Errorf("%s is fault %d of %d", a.Kind, i+1, len(plan))
			}
			if len(s.Faults) > 1 && !k.Mixes {
				t.Errorf("%s is mixed: %s", a.Kind, s)
			}
		}
	}
	for _, k := range kinds {
		if seen[k.Name] == 0 && !k.Final {
			t.Errorf("%s does not occur", k.Name)
		}
	}
	if length < 15*time.Minute || length > 17*time.Minute {
		t.Errorf("the plan lasts %s", length)
	}
}

// TestDrawAlone checks that each kind happens that often, alone, and leaves a majority.
func TestDrawAlone(t *testing.T) {
	const times = 20
	plan := DrawAlone(1, times, Kinds())
	if !reflect.DeepEqual(plan, DrawAlone(1, times, Kinds())) {
		t.Error("the same seed gives two plans")
	}
	seen := map[string]int{}
	for i, s := range plan {
		if len(s.Faults) != 1 || !s.Whole {
			t.Errorf("step %d is %+v", i, s)
		}
		if a := s.Faults[0]; a.Target == Majority || a.Target == All {
			t.Errorf("%s leaves no majority", s)
		}
		seen[s.Faults[0].Kind]++
	}
	finals := 0
	for _, k := range Kinds() {
		if k.Final {
			finals += seen[k.Name]
		} else if seen[k.Name] != times {
			t.Errorf("%s happens %d times", k.Name, seen[k.Name])
		}
	}
	if finals != 1 {
		t.Errorf("%d nodes do not return", finals)
	}
}

func TestKindsAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Kinds() {
		if seen[k.Name] || k.About == "" || len(k.Targets) == 0 || k.inflict == nil {
			t.Errorf("kind %+v is named twice or is not whole", k)
		}
		seen[k.Name] = true
	}
	if _, err := KindsNamed("kill", "nonsense"); err == nil {
		t.Error("a kind that there is not was found")
	}
}
