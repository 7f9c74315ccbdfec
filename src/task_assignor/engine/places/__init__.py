"""Items that cost, to places that hold them: the flow model, whole items of different weights, and the ways for very many."""
