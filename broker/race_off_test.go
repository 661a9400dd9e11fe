//go:build !race

package broker

// underRace: see race_on_test.go.
const underRace = false
