"""The papers' protocol in the sites of whole jobs, to compare the one that jobs run with it.

- `protocol`: the protocol itself.
- `host`: the machines of one site and what lies on their channels; `admission`: which frames of
  other sites it takes; `frames`: these as bytes; `copies`: what others see of a segment.
- `moving`: the state of a segment on its way to a standby.
- `intake`: the ingress, rebuilt where it left off.
- `ledger`: membership and copies as a function of the recorded events; `hosted`: its entries and
  notices as sites tell them.
- `hosting`: what the processes of a job are given to run it (`Config.hosting`).
"""
