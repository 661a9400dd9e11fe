package check

import "slices"

// worstMax is how many cases of a kind a report shows.
const worstMax = 8

// worst counts the cases of one kind and keeps the worst.
type worst struct {
	count int64
	cases []Anomaly // by falling size; of equal ones the first stays
}

// add counts a case of a kind. describe is called only if it is among the worst. Of
// cases of one reader and key that repeat, the worst stays.
func (a *analysis) add(kind Kind, size int64, describe func() Anomaly) {
	w := &a.found[kind]
	w.count++
	if len(w.cases) == worstMax && w.cases[worstMax-1].Size >= size {
		return
	}
	c := describe()
	c.Kind, c.Size = kind, size
	if c.again {
		same := slices.IndexFunc(w.cases, func(o Anomaly) bool { return o.reader == c.reader && o.Key == c.Key })
		if same >= 0 && w.cases[same].Size >= size {
			return
		}
		if same >= 0 {
			w.cases = slices.Delete(w.cases, same, same+1)
		}
	}
	at, _ := slices.BinarySearchFunc(w.cases, size, func(c Anomaly, size int64) int {
		if c.Size >= size {
			return -1
		}
		return 1
	})
	w.cases = slices.Insert(w.cases, at, c)
	w.cases = w.cases[:min(len(w.cases), worstMax)]
}
