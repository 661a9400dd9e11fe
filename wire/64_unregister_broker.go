package wire

import "github.com/weirmq/weir/wire/codec"

// KeyUnregisterBroker is the API that takes a broker out of the cluster.
//
// Its only version is flexible.
const KeyUnregisterBroker Key = 64

// UnregisterBrokerRequest names the broker.
type UnregisterBrokerRequest struct {
	BrokerID int32
}

// UnregisterBrokerResponse answers an UnregisterBrokerRequest.
type UnregisterBrokerResponse struct {
	ThrottleTimeMs int32
	ErrorCode      Code
	ErrorMessage   *string
}

// Key is KeyUnregisterBroker.
func (*UnregisterBrokerRequest) Key() Key { return KeyUnregisterBroker }

// Key is KeyUnregisterBroker.
func (*UnregisterBrokerResponse) Key() Key { return KeyUnregisterBroker }

func (r *UnregisterBrokerRequest) code(c *codec.Coder) {
	c.Int32(&r.BrokerID)
	c.Tags()
}

func (r *UnregisterBrokerResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codeCode(c, &r.ErrorCode)
	c.NullableString(&r.ErrorMessage)
	c.Tags()
}
