//go:build !race

package codec

// raceDetector tells that allocations are not what they are without it.
const raceDetector = false
