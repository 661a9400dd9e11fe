package storage

// gate bounds how many goroutines are inside blocking file calls at once. Every
// one of them costs an OS thread for as long as the disk makes it wait, and a
// thousand cold reads would make a thousand threads.
//
// Whoever is inside never enters again, and waits inside for nothing but the
// disk and one log's lock.
type gate chan struct{}

func newGate(width int) gate { return make(gate, width) }

func (g gate) enter() { g <- struct{}{} }
func (g gate) leave() { <-g }

// token is the right to do one thing at a time where a lock would be held across
// an fsync: it is taken out of the channel and put back.
type token chan struct{}

func newToken() token {
	t := make(token, 1)
	t <- struct{}{}
	return t
}

func (t token) take() { <-t }
func (t token) give() { t <- struct{}{} }

// tryTake takes the token unless somebody has it.
func (t token) tryTake() bool {
	select {
	case <-t:
		return true
	default:
		return false
	}
}
