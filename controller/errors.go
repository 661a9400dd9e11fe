package controller

import "errors"

var (
	// ErrNoController means that no controller took the call in time: nothing was done.
	ErrNoController = errors.New("no controller is available, nothing was done")
	// ErrUnknown means that the call was sent and its outcome is not known: it may have
	// taken effect or may still.
	ErrUnknown = errors.New("the outcome is unknown")
	// ErrClosed means that this node is closing or closed.
	ErrClosed = errors.New("the node is closed")

	// errNotController means that the node asked does not decide now; the caller tries another.
	errNotController = errors.New("not the controller")
)
