"""The diagnostic bundle: one file with what an installation says of itself, and what is wrong.

`gather.py` asks the daemons, `machine.py` looks at this machine, `writing.py` makes
the zip, `reading.py` opens one that may come from anybody, and `judge.py` finds what is wrong in
it, by the rules of nsqadmin's "needs attention" and by those that only a bundle can have.
`hiding.py` is why it can be given away: secrets never get in.

The zip holds (docs/formats.md has the whole list):

| file                 | what                                                       |
|----------------------|------------------------------------------------------------|
| manifest.json        | form, time, who asked what, every file with its checksum   |
| nsqd/N/...           | what one nsqd said                                         |
| nsqlookupd/N/...     | what one nsqlookupd said                                   |
| machine/...          | versions and limits where the bundle was gathered          |
| nsqadmin/...         | nsqadmin's own facts, when it has gathered                 |

Bodies of messages are never asked for.
"""
