"""All victims by name, in the order of the table."""

from zoo import digit_victims, embedding_victims, picture_victims, table_victims
from zoo.victim import Victim

VICTIMS: dict[str, Victim] = {
    victim.name: victim
    for family in (digit_victims, table_victims, picture_victims, embedding_victims)
    for victim in family.VICTIMS
}
