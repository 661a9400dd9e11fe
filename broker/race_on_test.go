//go:build race

package broker

// underRace: the race detector makes pools forget, so allocations are not counted.
const underRace = true
