package sim

import (
	"errors"
	"time"

	"github.com/weirmq/weir/fsm"
)

// Control calls between nodes. A call goes to whoever the caller takes for the
// leader. The request or the answer can be lost, and a request can come twice,
// the second time late.

// retryPause is how long a call waits before it asks again.
const retryPause = 20 * time.Millisecond

// syncWait bounds how long a question of a client waits for the controller.
const syncWait = time.Second

// server answers one call.
type server func(t *term, reply func(any, error))

// try makes one attempt to have the leader serve a call. done is called once.
func (n *node) try(patience time.Duration, serve server, done func(any, error)) {
	w, to := n.w, n.known
	if n.leadTerm != 0 {
		to = n
	}
	if to == nil {
		done(nil, errNotController)
		return
	}
	answered := false
	finish := func(v any, err error) {
		if !answered {
			answered = true
			done(v, err)
		}
	}
	n.do(patience, laneControl, func() { finish(nil, errUnknown) })
	if to == n {
		n.serve(serve, finish)
		return
	}
	if !w.reaches(n, to) || !w.reaches(to, n) || w.chance(w.plan.ControlLoss) {
		return // lost, or the dial goes nowhere
	}
	if !to.up {
		n.do(w.transit(n, to), laneControl, func() { finish(nil, errNotController) })
		return
	}
	arrive := func(answer func(any, error)) func() {
		return func() {
			if w.reaches(n, to) {
				to.serve(serve, answer)
			}
		}
	}
	life := n.life
	back := func(v any, err error) {
		if !w.reaches(to, n) || w.chance(w.plan.ControlLoss) || n.life != life {
			return
		}
		n.do(w.transit(to, n), laneControl, func() { finish(v, err) })
	}
	to.do(w.transit(n, to), laneControl, arrive(back))
	if w.chance(w.plan.ControlLoss) {
		late := w.between(time.Millisecond, 9*time.Second)
		to.do(late, laneControl, arrive(func(any, error) {}))
	}
}

// serve has the node's term answer a call, if there is one.
func (n *node) serve(s server, reply func(any, error)) {
	if n.term == nil || n.term.ended || !n.term.deciding {
		reply(nil, errNotController)
		return
	}
	s(n.term, reply)
}

// call repeats a call that may be done twice until it is answered or the
// deadline has passed.
func (n *node) call(deadline time.Duration, serve server, done func(any, error)) {
	n.try(min(callTimeout, max(deadline-n.w.now, 0)), serve, func(v any, err error) {
		switch {
		case err == nil, !errors.Is(err, errNotController) && !errors.Is(err, errUnknown):
			done(v, err)
		case n.w.now+retryPause >= deadline:
			done(nil, err)
		default:
			n.do(retryPause, laneControl, func() { n.call(deadline, serve, done) })
		}
	})
}

// propose gets one command into the log, as controller.Node.Propose does: what was
// surely not done is tried again until the deadline; an unknown outcome is final.
// The result is there once the node's own Image has reached it.
func (n *node) propose(patience time.Duration, c fsm.Command, done func(fsm.Result, error)) {
	deadline := n.w.now + patience
	over := false
	finish := func(res fsm.Result, err error) {
		if !over {
			over = true
			done(res, err)
		}
	}
	data := fsm.EncodeEntry(nil, []fsm.Command{c})
	var attempt func()
	attempt = func() {
		left := deadline - n.w.now
		if left <= 0 {
			finish(fsm.Result{}, errNoController)
			return
		}
		n.try(left, func(t *term, reply func(any, error)) { t.propose(data, reply) }, func(v any, err error) {
			switch {
			case errors.Is(err, errNotController):
				n.do(retryPause, laneControl, attempt)
			case err != nil:
				finish(fsm.Result{}, err)
			default:
				e := v.(*metaEntry)
				n.do(max(deadline-n.w.now, 0), laneControl, func() { finish(fsm.Result{}, errUnknown) })
				n.awaitIndex(e.index, func() { finish(e.results[0], nil) })
			}
		})
	}
	attempt()
}

// sync calls back once the node's Image holds all that had been decided when it was called, as
// controller.Node.Sync returns.
func (n *node) sync(patience time.Duration, done func(error)) {
	n.call(n.w.now+patience, func(t *term, reply func(any, error)) { t.sync(reply) }, func(v any, err error) {
		if err != nil {
			done(err)
			return
		}
		n.awaitIndex(v.(uint64), func() { done(nil) })
	})
}
