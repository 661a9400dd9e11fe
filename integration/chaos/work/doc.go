// Package work is what the clients of a chaos run do, and the record they keep of it.
//
// A Book holds the history, the keys and their names, and what has been acknowledged
// so far. A client is one process of the history with a franz-go client of its own: a
// producer (idempotent, acks=all), an assigned reader, or a member of a group that
// commits what it has read. Clients are crashed and replaced as they come of age. At
// the end ReadBack reads everything with fresh clients, up to the greatest end that
// anyone was ever told of.
//
// A record carries its key and value and bytes that follow from the value, so that a
// reader also sees a record that has strayed into another partition and a record whose
// bytes have changed.
//
// What a client is told counts: an acknowledged send is OK, any error is Info, since
// franz-go cannot say of which attempts the broker has seen nothing.
//
// # Goroutines and locks
//
// One per client, ended by its context; Crew.Close waits for all. Book.mu is a leaf.
//
// It imports integration/chaos/history.
package work
