from typing_extensions import Buffer

from penstock.kernel.batch_interface import Headers

def parse_headers(data: Buffer) -> Headers: ...
