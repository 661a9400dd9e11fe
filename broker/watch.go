package broker

// A Watcher tells one waiting fetch that something it looks at has changed. It
// may watch many partitions at once; signals that arrive while one is pending
// merge with it.
type Watcher struct {
	c chan struct{}
}

// NewWatcher returns a watcher that watches nothing yet.
func NewWatcher() *Watcher {
	return &Watcher{c: make(chan struct{}, 1)}
}

// C carries the signals. Its capacity is one: a signal says "look again", not how often.
func (w *Watcher) C() <-chan struct{} { return w.c }

// signal never blocks, so it may be called under a lock.
func (w *Watcher) signal() { wakeUp(w.c) }

// wakeUp leaves a signal in a channel of capacity one, unless one is there.
func wakeUp(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// watchSet is who watches one partition. A few have room in place, so that a
// fetch which watches a thousand idle partitions allocates for none of them.
//
// A signal takes out whom it signals: who is about to look again need not be told
// once more, and a crowd that waits for much costs the partition's lock nothing
// until each of them comes back.
type watchSet struct {
	few  [2]*Watcher
	more map[*Watcher]struct{}
}

func (s *watchSet) add(w *Watcher) {
	free := -1
	for i, has := range s.few {
		if has == w {
			return
		}
		if has == nil {
			free = i
		}
	}
	if _, has := s.more[w]; has {
		return
	}
	if free >= 0 {
		s.few[free] = w
		return
	}
	if s.more == nil {
		s.more = make(map[*Watcher]struct{})
	}
	s.more[w] = struct{}{}
}

func (s *watchSet) remove(w *Watcher) {
	for i, has := range s.few {
		if has == w {
			s.few[i] = nil
			return
		}
	}
	delete(s.more, w)
	if len(s.more) == 0 {
		s.more = nil // an idle partition keeps no empty table
	}
}

// signal signals all, and takes them out.
func (s *watchSet) signal() {
	for i, w := range s.few {
		if w != nil {
			w.signal()
			s.few[i] = nil
		}
	}
	for w := range s.more {
		w.signal()
	}
	s.more = nil
}
